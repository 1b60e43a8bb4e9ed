#pragma once
// What a member keeps in its folder: key.pem (0600), certificate.pem, authority.pem. The key is
// made once and stays, so that a request whose answer was lost can be made again, and a renewal
// replaces one file alone.
#include <filesystem>
#include <string>
#include <string_view>

#include "atoll/identity/certificate.h"
#include "atoll/identity/key.h"
#include "atoll/identity/registration.h"
#include "atoll/identity/wall_time.h"
#include "atoll/identity/wipe.h"

namespace atl::identity {

/// What a transport needs to show who it is, and to know others.
struct Credentials {
  std::string authority_pem;
  std::string certificate_pem;
  std::string key_pem;

  ~Credentials() { wipe(key_pem); }
};

/// Whether these belong together and hold at `now`. Fails with both clocks where it is a matter of
/// time.
Result<CertificateFacts> check(const Credentials& credentials, WallTime now);

/// The folder's key; makes the folder and the key where there is none. Throws InputError where
/// others may read it.
Key member_key(const std::filesystem::path& folder);

/// Keeps what check_reply() has found good. Throws InputError; never takes another run's authority
/// where there is one.
void save_reply(const std::filesystem::path& folder, const RegistrationReply& reply);

/// Throws InputError where a file is missing, or check() fails.
Credentials load_credentials(const std::filesystem::path& folder, WallTime now);

/// At half of its life, when there is time to try again.
bool renewal_due(const CertificateFacts& facts, WallTime now);

}  // namespace atl::identity
