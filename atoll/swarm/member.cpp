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

Member::Member(MemberOptions options)
    : options_(std::move(options)), pulse_(options_.heartbeat_interval) {}

Header Member::header(int64_t round, int32_t attempt) const {
  return {.run = run_, .term = term_, .round = round, .attempt = attempt};
}

/// What is said to nobody is said again when it matters (say_again()).
void Member::send(Message message) {
  if (contact_.is_open()) actions_.emplace_back(Send{std::move(message)});
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
  contact_.connect(now);
  pulse_.rest(now);
  if (is_member()) {
    send(Resume{.header = header(),
                .number = number(),
                .name = options_.name,
                .address = address,
                .num_commits = num_commits(),
                .first_round = first_round_.value_or(-1),
                .num_leased = num_leased_});
    contact_.resume();
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
  if (phase_ == Phase::kOver || !contact_.is_connected()) return take();
  contact_.hear(now);
  std::visit(
      [&](const auto& m) {
        using Kind = std::remove_cvref_t<decltype(m)>;
        constexpr bool kFirstWord = std::is_same_v<Kind, Welcome> ||
                                    std::is_same_v<Kind, Refused> || std::is_same_v<Kind, Resumed>;
        const bool ours = m.header.run == run_ && m.header.term == term_;
        const bool greets = phase_ == Phase::kGreeting || contact_.is_resuming();
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
  contact_.lose(reason, now);
  actions_.emplace_back(Reconnect{reason});
  return take();
}

Member::Actions Member::tick(Time now) {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return take();
  if (contact_.is_lost_for(options_.return_patience, now)) {
    fail(
        fmt::format("the coordinator was lost: {}; it did not come back within {:.0f} s; to "
                    "resume, start it and all islands again with the same run directories",
                    contact_.lost(), seconds(options_.return_patience)));
    return take();
  }
  if (!contact_.is_connected()) return take();
  if (contact_.is_silent(now, options_.silence_timeout)) {
    return coordinator_lost(
        fmt::format("no word from it for {:.0f} s", seconds(options_.silence_timeout)), now);
  }
  if (now < pulse_.next()) return take();
  if (phase_ == Phase::kGreeting) {
    pulse_.rest(now);
    return take();
  }
  Heartbeat heartbeat = pulse_.beat(now);
  heartbeat.header = header();
  heartbeat.caught_up = rounds_.num_caught_up();
  send(heartbeat);
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
  begin.header = header(round);
  rounds_.begin(begin);
  send(begin);
  return take();
}

Member::Actions Member::prepared(int64_t round, int32_t attempt, const Digest& digest,
                                 Measures measures) {
  if (phase_ == Phase::kOver) return take();
  if (rounds_.prepare(round, attempt, digest)) {
    send(Prepared{header(round, attempt), digest, std::move(measures)});
  }
  return take();
}

/// Said to nobody it is found again: there is another attempt then.
Member::Actions Member::unusable(int64_t round, int32_t attempt, int32_t contributor,
                                 const std::string& reason) {
  if (phase_ != Phase::kOver) send(Unusable{header(round, attempt), contributor, reason});
  return take();
}

Member::Actions Member::caught_up() {
  if (rounds_.catch_up()) send(CaughtUp{header(), num_commits()});  // Else it was said.
  return take();
}

Member::Actions Member::link_changed(int32_t other, bool up, const std::string& reason,
                                     net::Way way) {
  if (phase_ == Phase::kTraining) send(LinkState{header(), other, up, reason, way});
  return take();
}

Member::Actions Member::trouble(const std::string& reason, int32_t culprit) {
  if (phase_ == Phase::kOver) return take();
  send(Trouble{header(), culprit, reason});
  if (culprit < 0) fail(reason);
  return take();
}

void Member::report(int64_t step, double loss, double tokens_per_s, int64_t num_trained) {
  pulse_.report(
      {.step = step, .loss = loss, .tokens_per_s = tokens_per_s, .num_trained = num_trained});
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
  rounds_.drop();
  send(Leave{header()});
  return take();
}

Time Member::next_deadline() const {
  if (phase_ == Phase::kOver || phase_ == Phase::kIdle) return Time::max();
  if (!contact_.is_connected()) return contact_.lost_at() + options_.return_patience;
  return std::min(pulse_.next(), contact_.heard() + options_.silence_timeout);
}

void Member::on(const Welcome& message) {
  if (phase_ != Phase::kGreeting) return protest("a second Welcome");
  if (!run_.empty() && run_ != message.header.run) {
    return fail("the coordinator's run is another one now", Ending::kMembership);
  }
  const bool again = !run_.empty();
  phase_ = Phase::kGathering;
  contact_.restore();
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
  rounds_.start(message);
  pulse_.set_report_every(message.report_every);
  view_ = message.view;
  num_leased_ = (message.returns ? ready_.former.num_leased : 0) + num_units(message.units);
  if (!message.joins) first_round_ = 0;
  actions_.emplace_back(Started{message});
}

void Member::on(const Resumed& message) {
  if (!contact_.is_resuming()) return protest("a Resumed out of place");
  if (message.header.run != run_ || message.header.term < term_) {
    return protest(fmt::format("back in run '{}', term {}", printable(message.header.run),
                               message.header.term));
  }
  if (const std::string fault = fault_of(message.members); !fault.empty()) return protest(fault);
  term_ = message.header.term;
  view_ = message.view;
  contact_.restore();
  actions_.emplace_back(Viewed{.members = message.members});
  if (!message.units.empty()) on(Lease{message.header, message.units});
  say_again();
}

/// What a coordinator that has come back, or that this member has come back to, must know.
void Member::say_again() {
  for (Begin& begin : rounds_.say_again()) {
    begin.header = header(begin.header.round, begin.header.attempt);
    send(std::move(begin));
  }
  if (wants_stop_) send(StopRequest{header()});
  if (rounds_.is_level()) send(CaughtUp{header(), num_commits()});
  if (phase_ == Phase::kLeaving) send(Leave{header()});
}

void Member::on(const View& message) {
  if (phase_ < Phase::kTraining) return;
  if (const std::string fault = fault_of(message.members); !fault.empty()) return protest(fault);
  view_ = message.view;
  actions_.emplace_back(Viewed{message.members, message.revocations});
}

void Member::on(const AddressTried& message) {
  if (message.fault.empty()) return;
  actions_.emplace_back(
      Unreachable{.address = printable(message.address), .fault = printable(message.fault)});
}

void Member::on(const Meet& message) {
  if (phase_ != Phase::kTraining || message.other == number()) return;
  actions_.emplace_back(Meets{.other = message.other,
                              .meeting = {.relay = message.relay,
                                          .circuit = message.circuit,
                                          .calls = number() > message.other,
                                          .may_punch = message.may_punch}});
}

void Member::on(const PassOn& message) { actions_.emplace_back(PassesOn{message.circuit}); }

void Member::on(const OpenAttempt& message) {
  if (phase_ == Phase::kLeaving) return;
  const std::string objection = rounds_.objection_to(message);
  if (!objection.empty()) return protest(objection);
  rounds_.open(message);
  actions_.emplace_back(Exchange{message});
}

void Member::on(const Commit& message) {
  if (rounds_.is_known(message)) return;  // Said again.
  const std::string objection = rounds_.objection_to(message);
  if (!objection.empty()) return protest(objection);
  const bool has_result = rounds_.commit(message);
  if (phase_ == Phase::kLeaving) return;
  if (has_result) {
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
  if (phase_ != Phase::kTraining || !rounds_.is_to_begin(message)) return;
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
  last_moved_ = contact_.heard() - std::chrono::milliseconds(static_cast<int64_t>(quiet));
  if (message.waits == waits_) return;
  waits_ = message.waits;
  actions_.emplace_back(Waits{printable(waits_)});
}

template <typename Other>
void Member::on(const Other& other) {
  protest("a " + kind_name(other) + ", which is not for an island");
}

}  // namespace atl::swarm
