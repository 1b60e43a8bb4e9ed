#pragma once
// An invite: one word that somebody gives to somebody else, with all that is needed to become a
// member: where the run is, how to know that it is the right one, and a secret. Pure, thread-safe.
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/result.h"
#include "atoll/identity/peer.h"
#include "atoll/identity/wall_time.h"
#include "atoll/identity/wipe.h"

namespace atl::identity {

inline constexpr size_t kMaxInviteAddresses = 8;
inline constexpr size_t kMaxAddressBytes = 255;
inline constexpr size_t kMinSecretBytes = 16;
inline constexpr size_t kMaxSecretBytes = 64;
/// Of the word.
inline constexpr size_t kMaxInviteBytes = 4096;

struct Invite {
  std::vector<std::string> addresses;  // HOST:PORT, printable; at least one.
  std::string fingerprint;             // Of the run's authority.
  std::string secret;                  // As new_secret() makes it.
  std::string run_name;
  Role role = Role::kIsland;
  WallTime expiry;

  ~Invite() { wipe(secret); }
  bool operator==(const Invite&) const = default;
};

/// Whether the word is an invite, or the begin of one.
bool is_invite_word(std::string_view word);
/// 128 random bits as 22 letters, digits, '-' and '_'.
std::string new_secret();
/// Whether it could be one: nothing else reaches logs, files or hashes.
bool is_secret(std::string_view text);

/// The word, atoll1.BASE64URL. Throws InputError where a part is none that fits in.
std::string word_of(const Invite& invite);
/// The inverse of word_of(), strict. A word that lost its end, or has a wrong letter, is said to.
Result<Invite> invite_in(std::string_view word);

/// What a command line's argument stands for: "-" for the first line of `input`, @FILE for that of
/// a file, so that the secret need not stand in a shell's history; else itself. Without white space
/// around it. Throws InputError.
std::string read_invite_argument(std::string_view word, std::istream& input);
/// With standard input.
std::string read_invite_argument(std::string_view word);

}  // namespace atl::identity
