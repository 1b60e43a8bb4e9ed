#include "atoll/run/run_authority.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/identity/member_files.h"

namespace atl::run {
namespace fs = std::filesystem;
namespace {

using std::chrono::hours;

/// The coordinator has the authority at hand, and makes itself a new one each half of that.
constexpr hours kOwnValidity{48};
/// For islands of `atoll train --islands`: the coordinator renews theirs as anybody's.
constexpr hours kEnrolledValidity{48};

std::string key_hash_of(const identity::Key& key) {
  return hex(sha256(as_byte_span(key.public_der())));
}

}  // namespace

identity::WallTime wall_now() { return identity::wall_time_of(wall_time()); }

fs::path authority_folder(const fs::path& run) { return run / "authority"; }
fs::path invite_file(const fs::path& run) { return authority_folder(run) / "invites.json"; }
fs::path identity_folder(const fs::path& run) { return run / "identity"; }

bool has_authority(const fs::path& run) { return fs::exists(authority_folder(run)); }
bool has_identity(const fs::path& folder) {
  return fs::exists(identity_folder(folder) / "certificate.pem");
}

identity::Authority create_authority(const fs::path& run, const std::string& name) {
  // A folder without a key was left by one that was interrupted.
  if (fs::exists(authority_folder(run) / "authority-key.pem")) {
    throw InputError(
        fmt::format("'{}' has an authority already: 'atoll invite' invites to it", run.string()));
  }
  fs::create_directories(run);
  auto authority = identity::Authority::create(name, wall_now());
  authority.save(authority_folder(run));
  return authority;
}

void enrol(const fs::path& run, const fs::path& folder, const std::string& name) {
  const auto authority = identity::Authority::load(authority_folder(run));
  const identity::PeerId peer{
      .run = authority.fingerprint(), .role = identity::Role::kIsland, .name = name};
  const identity::Key key = identity::member_key(identity_folder(folder));
  const auto certificate = authority.sign(key.request(), peer, kEnrolledValidity, wall_now());
  if (!certificate) throw InputError(certificate.error().message);
  if (!identity::InviteBook(invite_file(run)).hold(peer, key_hash_of(key))) {
    throw InputError(fmt::format("'{}' is the name of another member of the run", name));
  }
  identity::save_reply(identity_folder(folder), {.certificate_pem = *certificate,
                                                 .authority_pem = authority.certificate_pem()});
}

RunAuthority::RunAuthority(const fs::path& run, EventSink tell)
    : authority_(identity::Authority::load(authority_folder(run))),
      book_(invite_file(run)),
      tell_(std::move(tell)),
      registrar_(authority_, book_, {}, tell_),
      trust_(std::make_shared<net::Trust>(own_credentials())),
      readers_(invite_file(run),
               [trust = trust_](const auto& facts) { return trust->objection(facts); }),
      renewed_(wall_now()) {}

identity::Credentials RunAuthority::own_credentials() const {
  const identity::Key key = identity::Key::generate();
  const auto certificate = authority_.sign(
      key.request(), {authority_.fingerprint(), identity::Role::kCoordinator, "coordinator"},
      kOwnValidity, wall_now());
  if (!certificate) throw InputError(certificate.error().message);
  return {authority_.certificate_pem(), *certificate, key.pem()};
}

identity::Credentials RunAuthority::web_credentials() const {
  const identity::Key key = identity::Key::generate();
  const auto certificate = authority_.sign_web(key, web_hosts_, kOwnValidity, wall_now());
  if (!certificate) throw InputError(certificate.error().message);
  return {authority_.certificate_pem(), *certificate, key.pem()};
}

std::shared_ptr<const net::HttpsHost> RunAuthority::serve_web(std::vector<std::string> hosts) {
  web_hosts_ = std::move(hosts);
  web_ = std::make_shared<net::HttpsHost>(web_credentials());
  return web_;
}

std::string RunAuthority::answer(std::string_view request, const identity::Caller& caller) {
  return registrar_.answer(request, caller, wall_now());
}

std::optional<Bytes> RunAuthority::newer_revocations() {
  if (wall_now() - renewed_ >= kOwnValidity / 2) {
    trust_->renew(own_credentials());
    if (web_) web_->renew(web_credentials());
    renewed_ = wall_now();
  }
  if (const auto refused = readers_.news(wall_now())) tell_(*refused);
  authority_.reload_revocations();
  const auto& list = authority_.revocations();
  if (list.entries.empty() || told_ == list.number) return std::nullopt;
  told_ = list.number;
  trust_->revoke(list);
  return authority_.signed_revocations();
}

}  // namespace atl::run
