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
    if (members[i].number < 0) return "a member's number is not valid";
    if (i > 0 && members[i - 1].number >= members[i].number) return "the members are not sorted";
  }
  return {};
}

}  // namespace

Member::Member(MemberOptions options) : options_(std::move(options)) {}

Header Member::header(int64_t round, int32_t attempt) const {
  return {.run = run_, .term = term_, .round = round, .attempt = attempt};
}

/// What is said to nobody is said again when it matters (say_again()).
void Member::send(Message message) {
  if (is_connected_ && !is_resuming_) actions_.emplace_back(Send{std::move(message)});
}

Member::Actions Member::take() { return std::exchange(actions_, {}); }

void Member::fail(std::string reason, Ending ending) {
  if (phase_ == Phase::kOver) return;
  phase_ = Phase::kOver;
  actions_.emplace_back(Failed{std::move(reason), ending});
}

void Member::protest(const std::string& what) {
  fail("the coordinator broke the protocol: " + what);
}

Member::Actions Member::connected(const std::string& address, Time now) {
  if (phase_ == Phase::kOver) return take();
  is_connected_ = true;
  address_ = address;
  heard_ = now;
  next_heartbeat_ = now + options_.heartbeat_interval;
  if (is_member()) {
    send(Resume{.header = header(),
                .number = start_.number,
                .name = options_.name,
                .address = address,
                .num_commits = num_commits_,
                .first_round = first_round_.value_or(-1),
                .num_leased = num_leased_});
    is_resuming_ = true;
    return take();
  }
  phase_ = Phase::kGreeting;
  send(Hello{.header = {.run = options_.run_name},
             .version = options_.version,
             .name = options_.name,
             .address = address,
             .settings = options_.settings});
  return take();
}

Member::Actions Member::received(const Message& message, Time now) {
  if (phase_ == Phase::kOver || !is_connected_) return take();
  heard_ = now;
  std::visit(
      [&](const auto& m) {
        using Kind = std::remove_cvref_t<decltype(m)>;
        constexpr bool kFirstWord = std::is_same_v<Kind, Welcome> ||
                                    std::is_same_v<Kind, Refused> || std::is_same_v<Kind, Resumed>;
        const bool ours = m.header.run == run_ && m.header.term == term_;
        const bool greets = phase_ == Phase::kGreeting || is_resuming_;
        if (ours || (greets && kFirstWord)) {
          on(m);
        } else {
          protest(fmt::format("a {} of run '{}', term {}", kind_name(message),
                              printable(m.header.run), m.header.term));
        }
      },
      message);
  return take();
}

Member::Actions Member::garbled(const std::string& reason, Time now) {
  return coordinator_lost("it sent what is no message: " + reason, now);
}

Member::Actions Member::coordinator_lost(const std::string& reason, Time now) {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return take();
  if (lost_.empty()) {
    lost_ = reason;
    lost_at_ = now;
  }
  is_connected_ = false;
  is_resuming_ = false;
  actions_.emplace_back(Reconnect{reason});
  return take();
}

Member::Actions Member::tick(Time now) {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return take();
  if (!lost_.empty() && now - lost_at_ > options_.return_patience) {
    fail(
        fmt::format("the coordinator was lost: {}; it did not come back within {:.0f} s; to "
                    "resume, start it and all islands again with the same run directories",
                    lost_, seconds(options_.return_patience)));
    return take();
  }
  if (!is_connected_) return take();
  if (now - heard_ > options_.silence_timeout) {
    return coordinator_lost(
        fmt::format("no word from it for {:.0f} s", seconds(options_.silence_timeout)), now);
  }
  if (now >= next_heartbeat_) {
    next_heartbeat_ = now + options_.heartbeat_interval;
    if (phase_ != Phase::kGreeting) {
      Heartbeat heartbeat = progress_;
      heartbeat.header = header();
      heartbeat.moved = moved_;
      heartbeat.caught_up = num_caught_up_;
      send(heartbeat);
      num_reported_ = heartbeat.num_trained;
    }
  }
  return take();
}

Member::Actions Member::ready(std::map<std::string, std::string> facts,
                              std::map<int64_t, std::string> checkpoints, Former former) {
  if (phase_ == Phase::kOver) return take();
  ready_ = {{}, std::move(facts), std::move(checkpoints), std::move(former)};
  if (phase_ == Phase::kGathering) {
    phase_ = Phase::kReady;
    ready_.header = header();
    send(ready_);
  }
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

Member::Actions Member::prepared(int64_t round, int32_t attempt, const Digest& digest,
                                 std::vector<double> sums_of_squares) {
  if (phase_ == Phase::kOver) return take();
  const auto found = rounds_.find(round);
  // Another has been opened meanwhile, or the round was decided without this member.
  if (found == rounds_.end() || found->second.attempt != attempt) return take();
  Round& state = found->second;
  if (state.stage != Stage::kExchanging) return take();
  state.stage = Stage::kPrepared;
  state.digest = digest;
  send(Prepared{header(round, attempt), digest, std::move(sums_of_squares)});
  return take();
}

/// Said to nobody it is found again: there is another attempt then.
Member::Actions Member::unusable(int64_t round, int32_t attempt, int32_t contributor,
                                 const std::string& reason) {
  if (phase_ != Phase::kOver) send(Unusable{header(round, attempt), contributor, reason});
  return take();
}

Member::Actions Member::caught_up() {
  if (num_caught_up_ == num_commits_) return take();  // Said, or known all along.
  num_caught_up_ = num_commits_;
  send(CaughtUp{header(), num_commits_});
  return take();
}

Member::Actions Member::link_changed(int32_t other, bool up, const std::string& reason) {
  if (phase_ == Phase::kTraining) send(LinkState{header(), other, up, reason});
  return take();
}

Member::Actions Member::trouble(const std::string& reason, int32_t culprit) {
  if (phase_ == Phase::kOver) return take();
  send(Trouble{header(), culprit, reason});
  if (culprit < 0) fail(reason);
  return take();
}

void Member::report(int64_t step, double loss, double tokens_per_s, int64_t num_trained) {
  progress_ = {
      .step = step, .loss = loss, .tokens_per_s = tokens_per_s, .num_trained = num_trained};
  const bool is_due = start_.report_every > 0 && num_trained - num_reported_ >= start_.report_every;
  if (is_due) next_heartbeat_ = {};  // At the next tick.
}

Member::Actions Member::request_stop() {
  wants_stop_ = true;
  if (phase_ != Phase::kOver && phase_ > Phase::kGreeting && phase_ != Phase::kLeaving) {
    send(StopRequest{header()});
  }
  return take();
}

Member::Actions Member::leave() {
  if (phase_ == Phase::kOver) return take();
  phase_ = Phase::kLeaving;
  rounds_.clear();
  send(Leave{header()});
  return take();
}

Time Member::next_deadline() const {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return Time::max();
  if (!is_connected_) return lost_at_ + options_.return_patience;
  return std::min(next_heartbeat_, heard_ + options_.silence_timeout);
}

void Member::on(const Welcome& message) {
  if (phase_ != Phase::kGreeting) return protest("a second Welcome");
  if (!run_.empty() && run_ != message.header.run) {
    return fail("the coordinator's run is another one now", Ending::kMembership);
  }
  const bool again = !run_.empty();
  phase_ = Phase::kGathering;
  lost_.clear();
  run_ = message.header.run;
  term_ = message.header.term;
  if (!again) actions_.emplace_back(Welcomed{run_, message.config});
  if (again && !ready_.checkpoints.empty()) {
    phase_ = Phase::kReady;
    ready_.header = header();
    send(ready_);
  }
}

void Member::on(const Refused& message) {
  if (is_member() && phase_ != Phase::kLeaving) {
    return fail("the coordinator refused this island: " + message.reason, Ending::kMembership);
  }
  if (phase_ == Phase::kLeaving) {
    phase_ = Phase::kOver;
    actions_.emplace_back(Left{});
    return;
  }
  fail("the coordinator refused this island: " + message.reason);
}

void Member::on(const Start& message) {
  if (phase_ != Phase::kReady) return protest("a Start out of place");
  if (const std::string fault = fault_of(message.members); !fault.empty()) return protest(fault);
  const auto own = std::ranges::find(message.members, message.number, &Peer::number);
  if (own == message.members.end() || own->name != options_.name) {
    return protest("the member list lacks this island");
  }
  if (message.num_replicas < 1) return protest("a Start of a run of nobody");
  if (message.returns && (message.joins || message.number != ready_.former.number)) {
    return protest("a Start as a member that this island was not");
  }
  phase_ = Phase::kTraining;
  start_ = message;
  view_ = message.view;
  num_leased_ = (message.returns ? ready_.former.num_leased : 0) + num_units(message.units);
  num_commits_ = message.num_commits;
  num_caught_up_ = message.joins ? 0 : num_commits_;
  for (const Held& held : message.held) committed_[held.fragment] = held.round;
  if (!message.joins) first_round_ = 0;
  actions_.emplace_back(Started{message});
}

void Member::on(const Resumed& message) {
  if (!is_resuming_) return protest("a Resumed out of place");
  if (message.header.run != run_ || message.header.term < term_) {
    return protest(fmt::format("back in run '{}', term {}", printable(message.header.run),
                               message.header.term));
  }
  if (const std::string fault = fault_of(message.members); !fault.empty()) return protest(fault);
  term_ = message.header.term;
  view_ = message.view;
  is_resuming_ = false;
  lost_.clear();
  actions_.emplace_back(Viewed{message.members});
  if (!message.units.empty()) on(Lease{message.header, message.units});
  say_again();
}

/// What a coordinator that has come back, or that this member has come back to, must know.
void Member::say_again() {
  for (auto& [number, round] : rounds_) {
    round.stage = Stage::kBegun;
    round.begin.header = header(number, round.attempt);
    send(round.begin);
  }
  if (wants_stop_) send(StopRequest{header()});
  if (num_caught_up_ == num_commits_) send(CaughtUp{header(), num_commits_});
  if (phase_ == Phase::kLeaving) send(Leave{header()});
}

void Member::on(const View& message) {
  if (phase_ < Phase::kTraining) return;
  if (const std::string fault = fault_of(message.members); !fault.empty()) return protest(fault);
  view_ = message.view;
  actions_.emplace_back(Viewed{message.members});
}

void Member::on(const OpenAttempt& message) {
  if (phase_ == Phase::kLeaving) return;
  const auto found = rounds_.find(message.header.round);
  if (found == rounds_.end() || message.header.attempt <= found->second.attempt) {
    return protest(
        fmt::format("attempt {} of round {}, which is not the next of one that was begun",
                    message.header.attempt, message.header.round));
  }
  Round& round = found->second;
  const std::string fault = swarm::fault_of(message, round.begin, start_.number);
  if (!fault.empty()) return protest(fault);
  round.stage = Stage::kExchanging;
  round.attempt = message.header.attempt;
  round.digest = {};
  // Whose contribution was left out abstains from there on.
  round.begin.weight = message.weights[static_cast<size_t>(*rank_in(message, start_.number))];
  actions_.emplace_back(Exchange{message});
}

void Member::on(const Commit& message) {
  if (message.index < num_commits_) return;  // Said again.
  if (message.index > num_commits_) {
    return protest(fmt::format("commit {}, where {} is next", message.index, num_commits_));
  }
  if (const std::string fault = swarm::fault_of(message); !fault.empty()) return protest(fault);
  num_commits_ += 1;
  if (phase_ == Phase::kLeaving) return;
  committed_[message.held.fragment] = message.held.round;
  // Its result is here if this member has prepared it, in whatever term that was.
  const auto found = rounds_.find(message.held.round);
  const bool has_result =
      found != rounds_.end() && found->second.attempt == message.header.attempt &&
      found->second.digest == message.held.digest &&
      std::ranges::find(message.members, start_.number) != message.members.end();
  if (found != rounds_.end()) rounds_.erase(found);
  if (has_result) {
    if (num_caught_up_ + 1 == num_commits_) num_caught_up_ = num_commits_;
    actions_.emplace_back(Committed{message});
  } else {
    actions_.emplace_back(Missed{message});
  }
}

void Member::on(const Lease& message) {
  num_leased_ += num_units(message.units);
  actions_.emplace_back(Leased{message.units});
}

void Member::on(const Reinstated& message) {
  first_round_ = message.first_round;
  actions_.emplace_back(TakesPart{message});
}

void Member::on(const Due& message) {
  if (phase_ != Phase::kTraining || rounds_.contains(message.header.round)) return;
  const auto committed = committed_.find(message.fragment);
  if (committed != committed_.end() && committed->second >= message.header.round) return;
  if (message.header.round < 0 || message.fragment < 0) return protest("a Due of no round");
  actions_.emplace_back(Called{message});
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
    fail(message.reason, message.complete ? Ending::kComplete : Ending::kFailure);
  }
}

void Member::on(const Alive& message) {
  constexpr uint64_t kLongest = 1'000'000'000;  // 11 days: no time overflows.
  const auto quiet = std::min(message.quiet_ms, kLongest);
  last_moved_ = heard_ - std::chrono::milliseconds(static_cast<int64_t>(quiet));
  if (message.waits == waits_) return;
  waits_ = message.waits;
  actions_.emplace_back(Waits{printable(waits_)});
}

template <typename Other>
void Member::on(const Other& other) {
  protest("a " + kind_name(other) + ", which is not for an island");
}

}  // namespace atl::swarm
