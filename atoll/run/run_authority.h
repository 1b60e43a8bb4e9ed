#pragma once
// Where a run's certificates lie, and who makes them. In the folder of a run that was created
// (`atoll create`): authority/, with the authority and the book of invites. In each member's:
// identity/, with its key, its certificate and the coordinator that it joined.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/event.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/invite_book.h"
#include "atoll/identity/reader_gate.h"
#include "atoll/identity/registrar.h"
#include "atoll/net/https.h"
#include "atoll/net/trust.h"

namespace atl::run {

identity::WallTime wall_now();

std::filesystem::path authority_folder(const std::filesystem::path& run);
std::filesystem::path invite_file(const std::filesystem::path& run);
std::filesystem::path identity_folder(const std::filesystem::path& run);
/// Whether the run in `folder` was created, and has an authority.
bool has_authority(const std::filesystem::path& run);
/// Whether whoever trains in `folder` is a member of an encrypted run.
bool has_identity(const std::filesystem::path& folder);

/// Makes the authority of a run. Throws InputError where there is one.
identity::Authority create_authority(const std::filesystem::path& run, const std::string& name);

/// Makes `folder` a member of the run without an invite: for who has both folders at hand. One that
/// is a member already gets a new certificate.
void enrol(const std::filesystem::path& run, const std::filesystem::path& folder,
           const std::string& name);

/// What a coordinator does for its run's members: certifies them, and tells who is revoked. The
/// coordinator's own certificates are made anew with each process. For one thread, but for
/// readers().
class RunAuthority {
 public:
  RunAuthority(const std::filesystem::path& run, EventSink tell);

  const std::shared_ptr<net::Trust>& trust() const { return trust_; }
  const std::string& fingerprint() const { return authority_.fingerprint(); }

  std::string answer(std::string_view request, const identity::Caller& caller);
  /// The signed list, where another process has made it longer since the last call. It is in force
  /// here at once. Renews the coordinator's own certificates when that is due, and tells of
  /// readers that were refused.
  std::optional<Bytes> newer_revocations();

  /// For a server that readers ask over HTTPS by these hosts. Throws InputError.
  std::shared_ptr<const net::HttpsHost> serve_web(std::vector<std::string> hosts);
  /// Who of them may read. Thread-safe.
  identity::ReaderGate& readers() { return readers_; }

 private:
  identity::Credentials own_credentials() const;
  identity::Credentials web_credentials() const;

  identity::Authority authority_;
  identity::InviteBook book_;
  EventSink tell_;
  identity::Registrar registrar_;
  std::shared_ptr<net::Trust> trust_;
  identity::ReaderGate readers_;
  std::vector<std::string> web_hosts_;
  std::shared_ptr<net::HttpsHost> web_;  // Null: no server was asked for.
  identity::WallTime renewed_;
  std::optional<uint64_t> told_;  // The number of the list.
};

}  // namespace atl::run
