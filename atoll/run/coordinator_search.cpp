#include "atoll/run/coordinator_search.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "atoll/net/address.h"
#include "atoll/net/discovery.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/run/events.h"
#include "atoll/swarm/inbox.h"
#include "atoll/swarm/unanswered.h"

namespace atl::run {
namespace {

constexpr Duration kForAnswers = std::chrono::seconds(1);
constexpr int kTriesForOneQuestion = 5;
constexpr Duration kForProof = std::chrono::seconds(2);
constexpr Duration kNap = std::chrono::milliseconds(50);
constexpr Duration kBetweenTries = std::chrono::milliseconds(500);
constexpr size_t kMaxQueuedBytes = size_t{1} << 16;

bool is_on_this_machine(const std::string& address) {
  const auto parsed = net::parse_address(address);
  return parsed && net::is_loopback(*parsed);
}

enum class Presence { kAbsent, kSomebodyElse, kProved };

/// Who answers there, if anybody does.
Presence presence_at(const std::string& address, const CoordinatorSearch& search,
                     const Clock& clock) {
  swarm::Inbox<net::Event> inbox(kMaxQueuedBytes);
  const auto transport = net::make_tcp_transport(
      {.trust = search.trust}, clock, [&](net::Event event) { inbox.push(std::move(event)); });
  transport->connect(address, net::Plane::kJoin);
  const Time end = clock.now() + kForProof;
  while (clock.now() < end && !search.cancelled()) {
    const auto event = inbox.pop(kNap);
    if (!event) continue;
    if (std::holds_alternative<net::Opened>(*event)) return Presence::kProved;
    if (const auto* lost = std::get_if<net::Lost>(&*event)) {
      return is_verdict(lost->reason) ? Presence::kSomebodyElse : Presence::kAbsent;
    }
  }
  return Presence::kAbsent;
}

}  // namespace

bool is_verdict(const std::string& reason) {
  return reason.find("certificate") != std::string::npos;
}

UnansweredNotice::UnansweredNotice(std::string coordinator, EventSink tell, Time now)
    : coordinator_(std::move(coordinator)),
      tell_(std::move(tell)),
      due_(now + swarm::kUnanswered) {}

void UnansweredNotice::tick(Time now) {
  if (now < due_) return;
  due_ = Time::max();
  tell_(CoordinatorUnanswered{coordinator_});
}

LanSearch::LanSearch(std::string fingerprint, std::vector<std::string> known, const Clock& clock)
    : fingerprint_(std::move(fingerprint)), known_(std::move(known)), clock_(clock) {}

std::vector<std::string> LanSearch::ask() {
  if (std::ranges::all_of(known_, is_on_this_machine)) return {};
  if (num_tries_++ % kTriesForOneQuestion != 0) return {};
  auto found = net::find_on_lan(fingerprint_, kForAnswers, clock_);
  std::erase_if(found, [this](const std::string& address) {
    return std::ranges::find(known_, address) != known_.end();
  });
  return found;
}

std::string seek_coordinator(const CoordinatorSearch& search, const Clock& clock) {
  if (is_on_this_machine(search.known)) return search.known;
  LanSearch lan(search.fingerprint, {search.known}, clock);
  const Time end = clock.now() + search.patience;
  UnansweredNotice notice(search.known, search.tell, clock.now());
  while (!search.cancelled()) {
    const Presence presence = presence_at(search.known, search, clock);
    if (presence == Presence::kProved) break;
    for (const std::string& address : lan.ask()) {
      if (presence_at(address, search, clock) != Presence::kProved) continue;
      search.tell(CoordinatorFound{
          .authority = search.fingerprint, .coordinator = address, .known = search.known});
      return address;
    }
    if (presence == Presence::kSomebodyElse || clock.now() >= end) break;
    notice.tick(clock.now());
    std::this_thread::sleep_for(kBetweenTries);
  }
  return search.known;
}

}  // namespace atl::run
