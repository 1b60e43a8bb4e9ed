#include "atoll/run/registration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <optional>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/identity/invite_book.h"
#include "atoll/identity/member_files.h"
#include "atoll/identity/registration.h"
#include "atoll/identity/revocation.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/run/coordinator_search.h"
#include "atoll/run/events.h"
#include "atoll/run/run_authority.h"
#include "atoll/swarm/inbox.h"

namespace atl::run {
namespace fs = std::filesystem;
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);  // For an answer.
constexpr Duration kNap = std::chrono::milliseconds(100);
constexpr size_t kMaxQueuedBytes = size_t{1} << 20;
constexpr const char* kCoordinatorFile = "coordinator";
constexpr const char* kInviteFile = "invite";  // The id of the one that the member came by.
constexpr Duration kBetweenTries = std::chrono::seconds(1);
/// Whether a renewal is due is looked at so often; after one that failed it is tried again then.
constexpr std::chrono::seconds kBetweenLooks{30};

/// One question and its answer, over a connection of its own.
Result<std::string> ask(const std::string& address, std::shared_ptr<net::Trust> trust,
                        const std::string& request, const Clock& clock,
                        const std::function<bool()>& cancelled) {
  swarm::Inbox<net::Event> inbox(kMaxQueuedBytes);
  const auto transport = net::make_tcp_transport(
      {.trust = std::move(trust)}, clock, [&](net::Event event) { inbox.push(std::move(event)); });
  const auto connection = transport->connect(address, net::Plane::kJoin);
  const auto bytes = as_byte_span(request);
  if (transport->send(connection, Bytes(bytes.begin(), bytes.end())) != net::Sent::kAccepted) {
    return failure(fmt::format("cannot ask {}", address));
  }
  const Time end = clock.now() + kPatience;
  while (clock.now() < end) {
    if (cancelled()) return failure("interrupted");
    const auto event = inbox.pop(kNap);
    if (!event) continue;
    if (const auto* received = std::get_if<net::Received>(&*event)) {
      return std::string(reinterpret_cast<const char*>(received->frame.data()),
                         received->frame.size());
    }
    if (const auto* lost = std::get_if<net::Lost>(&*event)) return failure(lost->reason);
  }
  return failure(fmt::format("{} does not answer", address));
}

/// Asks for a certificate and keeps it. `is_answered`: the coordinator said something.
Result<void> obtain(const std::string& address, std::shared_ptr<net::Trust> trust,
                    const std::string& fingerprint, const fs::path& folder,
                    identity::RegistrationRequest request, const Clock& clock,
                    const std::function<bool()>& cancelled, bool& is_answered) {
  const identity::Key key = identity::member_key(identity_folder(folder));
  request.certificate_request = key.request();
  const auto answer = ask(address, std::move(trust), identity::encode(request), clock, cancelled);
  is_answered = is_answered || answer;
  if (!answer) return tl::unexpected(answer.error());
  const auto reply = identity::decode_reply(*answer);
  if (!reply) return tl::unexpected(reply.error());
  if (const auto good = identity::check_reply(*reply, fingerprint, key, wall_now()); !good) {
    return tl::unexpected(good.error());
  }
  identity::save_reply(identity_folder(folder), *reply);
  return {};
}

/// What a later start goes by.
void keep_membership(const identity::Invite& invite, const fs::path& folder,
                     const std::string& coordinator) {
  write_file_atomically(identity_folder(folder) / kCoordinatorFile, coordinator + "\n");
  write_file_atomically(identity_folder(folder) / kInviteFile, identity::invite_id(invite.secret));
}

}  // namespace

std::string register_by_invite(const identity::Invite& invite, const fs::path& folder,
                               const std::string& name, Duration patience, const Clock& clock,
                               const std::function<bool()>& cancelled, const EventSink& tell) {
  if (invite.expiry < wall_now()) {
    throw InputError(
        fmt::format("the invite expired at {} (this machine's clock says {}): ask for a new one",
                    identity::text_of(invite.expiry), identity::text_of(wall_now())));
  }
  const std::shared_ptr<net::Trust> trust = net::Trust::stranger(invite.fingerprint);
  const Time end = clock.now() + patience;
  UnansweredNotice notice(fmt::format("{}", fmt::join(invite.addresses, ", ")), tell, clock.now());
  LanSearch lan(invite.fingerprint, invite.addresses, clock);
  while (true) {
    std::string reasons;
    bool is_answered = false;
    const auto join_at = [&](const std::string& address) {
      const auto result =
          obtain(address, trust, invite.fingerprint, folder,
                 {.invite_secret = invite.secret, .name = name}, clock, cancelled, is_answered);
      if (!result) reasons += (reasons.empty() ? "" : "; ") + result.error().message;
      return result.has_value();
    };
    for (const std::string& address : invite.addresses) {
      if (!join_at(address)) continue;
      keep_membership(invite, folder, address);
      return address;
    }
    const bool is_refused = is_answered || is_verdict(reasons);
    if (!is_answered && !cancelled()) {
      // Somebody else at the address that was the coordinator's is no reason not to look for it;
      // and who lies on the LAN is not to have the last word.
      for (const std::string& address : lan.ask()) {
        if (!join_at(address)) continue;
        // A later start, maybe elsewhere, shall try first what the invite says.
        keep_membership(invite, folder, invite.addresses.front());
        tell(CoordinatorFound{.authority = invite.fingerprint,
                              .coordinator = address,
                              .known = invite.addresses.front()});
        return address;
      }
    }
    if (is_refused || is_answered || cancelled() || clock.now() >= end) {
      throw InputError(fmt::format("cannot join '{}': {}", invite.run_name, reasons));
    }
    notice.tick(clock.now());
    std::this_thread::sleep_for(kBetweenTries);
  }
}

std::string come_by_invite(const identity::Invite& invite, const fs::path& folder,
                           const std::string& name, Duration patience, const Clock& clock,
                           const std::function<bool()>& cancelled, const EventSink& tell) {
  if (has_come_by(invite, folder)) return joined_coordinator(folder);
  return register_by_invite(invite, folder, name, patience, clock, cancelled, tell);
}

bool has_come_by(const identity::Invite& invite, const fs::path& folder) {
  const fs::path file = identity_folder(folder) / kInviteFile;
  if (!has_identity(folder) || !fs::exists(file)) return false;
  if (read_file(file) != identity::invite_id(invite.secret)) return false;
  try {
    identity::load_credentials(identity_folder(folder), wall_now());
    return true;
  } catch (const InputError&) {  // It has expired: the invite may be good for another.
    return false;
  }
}

std::string joined_coordinator(const fs::path& folder) {
  const fs::path file = identity_folder(folder) / kCoordinatorFile;
  if (!fs::exists(file)) return "";
  const std::string text = read_file(file);
  return text.substr(0, text.find('\n'));
}

identity::PeerId certified_peer(const fs::path& folder) {
  const auto facts = identity::facts_of(read_file(identity_folder(folder) / "certificate.pem"));
  if (!facts) throw InputError(facts.error().message);
  return facts->peer;
}

Certificate::Certificate(fs::path folder, std::string coordinator, const Clock& clock,
                         EventSink tell)
    : folder_(std::move(folder)),
      known_coordinator_(std::move(coordinator)),
      clock_(clock),
      tell_(std::move(tell)),
      coordinator_(known_coordinator_) {
  const auto credentials = identity::load_credentials(identity_folder(folder_), wall_now());
  authority_pem_ = credentials.authority_pem;
  trust_ = std::make_shared<net::Trust>(credentials);
  thread_ = std::thread([this] { keep_renewed(); });
}

Certificate::~Certificate() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

bool Certificate::is_stopping() const {
  const MutexLock lock(mutex_);
  return is_stopping_;
}

void Certificate::take_revocations(const Bytes& signed_list) const {
  auto list = identity::verify(signed_list, authority_pem_);
  if (list) trust_->revoke(*std::move(list));
}

std::string Certificate::seek_coordinator(Duration patience,
                                          const std::function<bool()>& cancelled) {
  const auto fingerprint = identity::fingerprint_of(authority_pem_);
  if (!fingerprint) throw InputError(fingerprint.error().message);
  std::string found = run::seek_coordinator({.known = known_coordinator_,
                                             .fingerprint = *fingerprint,
                                             .trust = trust_,
                                             .patience = patience,
                                             .cancelled = cancelled,
                                             .tell = tell_},
                                            clock_);
  const MutexLock lock(mutex_);
  coordinator_ = found;
  return found;
}

std::string Certificate::coordinator() const {
  const MutexLock lock(mutex_);
  return coordinator_;
}

void Certificate::keep_renewed() {
  while (!is_stopping()) {
    renew();
    MutexLock lock(mutex_);
    stopped_.wait_for(lock, kBetweenLooks, [&]() ATOLL_REQUIRES(mutex_) { return is_stopping_; });
  }
}

void Certificate::renew() {
  try {
    const auto facts = identity::facts_of(read_file(identity_folder(folder_) / "certificate.pem"));
    if (!facts || !identity::renewal_due(*facts, wall_now())) return;
    const auto fingerprint = facts->peer.run;
    bool is_answered = false;
    const auto result = obtain(
        coordinator(), trust_, fingerprint, folder_, {}, clock_, [this] { return is_stopping(); },
        is_answered);
    if (result) {
      trust_->renew(identity::load_credentials(identity_folder(folder_), wall_now()));
      return;
    }
    tell_(CertificateNotRenewed{.reason = result.error().message,
                                .until = identity::text_of(facts->not_after)});
  } catch (const InputError& error) {
    tell_(CertificateNotRenewed{.reason = error.what()});
  }
}

}  // namespace atl::run
