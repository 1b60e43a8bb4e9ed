#include "atoll/swarm/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

constexpr size_t kMaxMembers = 1024;

/// What is wrong with the member list; empty if nothing.
std::string fault_of(const std::vector<Peer>& members) {
  if (members.empty() || members.size() > kMaxMembers) return "the member list has a wrong length";
  for (size_t i = 0; i < members.size(); ++i) {
    if (!is_valid_name(members[i].name)) return "a member's name is not valid";
    if (i > 0 && members[i - 1].name >= members[i].name) return "the member list is not sorted";
  }
  return {};
}

}  // namespace

Member::Member(MemberOptions options) : options_(std::move(options)) {}

Header Member::header(int64_t round, int32_t attempt) const {
  return {.run = run_, .term = term_, .round = round, .attempt = attempt};
}

void Member::send(Message message) { actions_.emplace_back(Send{std::move(message)}); }

Member::Actions Member::take() { return std::exchange(actions_, {}); }

void Member::fail(std::string reason) {
  if (phase_ == Phase::kOver) return;
  phase_ = Phase::kOver;
  actions_.emplace_back(Failed{std::move(reason)});
}

void Member::protest(const std::string& what) {
  fail("the coordinator broke the protocol: " + what);
}

Member::Actions Member::connected(const std::string& address, Time now) {
  ATOLL_CHECK(phase_ == Phase::kIdle);
  phase_ = Phase::kGreeting;
  heard_ = now;
  next_heartbeat_ = now + options_.heartbeat_interval;
  send(Hello{.version = options_.version,
             .name = options_.name,
             .address = address,
             .settings = options_.settings});
  return take();
}

Member::Actions Member::received(const Message& message, Time now) {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return take();
  heard_ = now;
  std::visit(
      [&](const auto& m) {
        using Kind = std::remove_cvref_t<decltype(m)>;
        const bool first_word = std::is_same_v<Kind, Welcome> || std::is_same_v<Kind, Refused>;
        const bool ours = m.header.run == run_ && m.header.term == term_;
        if (ours || (phase_ == Phase::kGreeting && first_word)) {
          on(m);
        } else {
          protest(fmt::format("a {} of run '{}', term {}", kind_name(message),
                              printable(m.header.run), m.header.term));
        }
      },
      message);
  return take();
}

Member::Actions Member::garbled(const std::string& reason) {
  if (phase_ != Phase::kIdle) protest("it sent what is no message: " + reason);
  return take();
}

Member::Actions Member::coordinator_lost(const std::string& reason) {
  if (phase_ == Phase::kLeaving) {  // Everything was committed; nobody is left to say goodbye.
    phase_ = Phase::kOver;
    actions_.emplace_back(Left{});
  } else {
    fail(
        fmt::format("the coordinator was lost: {}; to resume, start it and all islands again with "
                    "the same run directories",
                    reason));
  }
  return take();
}

Member::Actions Member::tick(Time now) {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return take();
  if (!trouble_.empty() && now >= verdict_due_) {
    fail(trouble_);
    return take();
  }
  if (now - heard_ > options_.silence_timeout) {
    return coordinator_lost(
        fmt::format("no word from it for {:.0f} s", seconds(options_.silence_timeout)));
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + options_.heartbeat_interval;
    if (phase_ != Phase::kGreeting) {
      Heartbeat heartbeat = progress_;
      heartbeat.header = header();
      heartbeat.moved = moved_;
      send(heartbeat);
    }
  }
  return take();
}

Member::Actions Member::ready(std::map<std::string, std::string> facts,
                              std::map<int64_t, std::string> checkpoints) {
  if (phase_ == Phase::kOver) return take();
  ATOLL_CHECK(phase_ == Phase::kGathering);
  phase_ = Phase::kReady;
  send(Ready{header(), std::move(facts), std::move(checkpoints)});
  return take();
}

Member::Actions Member::begin(int64_t round, Begin begin) {
  if (phase_ == Phase::kOver) return take();
  ATOLL_CHECK(phase_ == Phase::kTraining);
  ATOLL_CHECK(!rounds_.contains(round));
  begin.header = header(round);
  ATOLL_CHECK(swarm::fault_of(begin).empty(), swarm::fault_of(begin));
  rounds_[round] = {.begin = begin};
  send(begin);
  return take();
}

Member::Actions Member::prepared(int64_t round, int32_t attempt, const Digest& digest) {
  if (phase_ == Phase::kOver) return take();
  Round& state = rounds_.at(round);
  if (state.attempt != attempt) return take();  // Another has been opened meanwhile.
  ATOLL_CHECK(state.stage == Stage::kExchanging);
  state.stage = Stage::kPrepared;
  state.digest = digest;
  send(Prepared{header(round, attempt), digest});
  return take();
}

Member::Actions Member::trouble(const std::string& reason, Time now) {
  if (phase_ == Phase::kOver || !trouble_.empty()) return take();
  trouble_ = reason;
  verdict_due_ = now + options_.verdict_timeout;
  send(Trouble{header(), reason});
  return take();
}

void Member::report(int64_t step, double loss, double tokens_per_s) {
  progress_ = {.step = step, .loss = loss, .tokens_per_s = tokens_per_s};
}

Member::Actions Member::request_stop() {
  if (joined() && phase_ != Phase::kGreeting && phase_ != Phase::kLeaving) {
    send(StopRequest{header()});
  }
  return take();
}

Member::Actions Member::leave() {
  if (phase_ == Phase::kOver) return take();
  phase_ = Phase::kLeaving;
  send(Leave{header()});
  return take();
}

Time Member::next_deadline() const {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return Time::max();
  const Time next = std::min(next_heartbeat_, heard_ + options_.silence_timeout);
  return trouble_.empty() ? next : std::min(next, verdict_due_);
}

void Member::on(const Welcome& message) {
  if (phase_ != Phase::kGreeting) return protest("a second Welcome");
  phase_ = Phase::kGathering;
  run_ = message.header.run;
  term_ = message.header.term;
  actions_.emplace_back(Welcomed{run_, message.config});
}

void Member::on(const Refused& message) {
  fail("the coordinator refused this island: " + message.reason);
}

void Member::on(const Start& message) {
  if (phase_ != Phase::kReady) return protest("a Start out of place");
  if (const std::string fault = fault_of(message.members); !fault.empty()) return protest(fault);
  const auto own = std::ranges::find(message.members, options_.name, &Peer::name);
  if (own == message.members.end()) return protest("the member list lacks this island");
  phase_ = Phase::kTraining;
  start_ = message;
  number_ = static_cast<int32_t>(own - message.members.begin());
  actions_.emplace_back(Started{message, number_});
}

void Member::on(const OpenAttempt& message) {
  const auto found = rounds_.find(message.header.round);
  if (found == rounds_.end() || message.header.attempt <= found->second.attempt) {
    return protest(
        fmt::format("attempt {} of round {}, which is not the next of one that was begun",
                    message.header.attempt, message.header.round));
  }
  Round& round = found->second;
  const std::string fault = swarm::fault_of(message, round.begin, start_.members.size(), number_);
  if (!fault.empty()) return protest(fault);
  round.stage = Stage::kExchanging;
  round.attempt = message.header.attempt;
  actions_.emplace_back(Exchange{message});
}

void Member::on(const Commit& message) {
  const auto found = rounds_.find(message.header.round);
  if (found == rounds_.end() || found->second.stage != Stage::kPrepared ||
      found->second.attempt != message.header.attempt || found->second.digest != message.digest) {
    return protest(
        fmt::format("a Commit of round {}, attempt {}, which is not what this island "
                    "prepared",
                    message.header.round, message.header.attempt));
  }
  rounds_.erase(found);
  actions_.emplace_back(Committed{message});
}

void Member::on(const Goodbye& /*message*/) {
  if (phase_ != Phase::kLeaving) return protest("a Goodbye out of place");
  phase_ = Phase::kOver;
  actions_.emplace_back(Left{});
}

void Member::on(const RunEnded& message) {
  if (phase_ == Phase::kLeaving) {  // This island's work was complete.
    phase_ = Phase::kOver;
    actions_.emplace_back(Left{});
  } else {
    fail(message.reason);
  }
}

void Member::on(const Alive& message) {
  constexpr uint64_t kLongest = 1'000'000'000;  // 11 days: no time overflows.
  const auto quiet = std::min(message.quiet_ms, kLongest);
  last_moved_ = heard_ - std::chrono::milliseconds(static_cast<int64_t>(quiet));
}

template <typename Other>
void Member::on(const Other& other) {
  protest("a " + kind_name(other) + ", which is not for an island");
}

}  // namespace atl::swarm
