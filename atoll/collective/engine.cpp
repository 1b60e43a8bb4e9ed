#include "atoll/collective/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/collective/events.h"
#include "atoll/collective/part_frame.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

static_assert(kNoFragment == swarm::kNoFragment);

/// Of memory that one round leaves to the next, at most.
constexpr size_t kMaxSpareBytes = size_t{1} << 30;

swarm::MemberOptions member_options(const SessionOptions& options) {
  swarm::MemberOptions out{.name = options.name,
                           .run_name = options.run_name,
                           .settings = options.settings,
                           .silence_timeout = options.silence_timeout,
                           .return_patience = options.return_patience};
  if (!options.version.empty()) out.version = options.version;
  return out;
}

}  // namespace

Engine::Engine(SessionOptions options, std::string address, net::Transport& transport,
               EngineListener& listener)
    : options_(std::move(options)),
      address_(std::move(address)),
      transport_(transport),
      listener_(listener),
      member_(member_options(options_)),
      links_(transport_, [this](int64_t round, size_t frame_bytes,
                                Time now) { count_sent(round, frame_bytes, now); }),
      memory_(std::make_shared<RoundMemory>(PagePool(kMaxSpareBytes))),
      lender_(options_.result_log_bytes) {}

Engine::~Engine() = default;

void Engine::connect(Time now) {
  give_up_at_ = now + options_.connect_patience;
  dial();
}

void Engine::dial() {
  redial_.tried();
  control_ = transport_.connect(options_.coordinator, net::Plane::kControl);
}

void Engine::handle(net::Event event, Time now) {
  if (over_) return;
  if (const auto* opened = std::get_if<net::Opened>(&event)) {
    if (opened->connection == control_) {
      act(member_.connected(address_, now), now);
    } else if (opened->inbound) {
      const bool is_let_in =
          opened->plane == net::Plane::kBulk &&
          visitors_.admit(opened->connection, opened->certificate, now, opened->way);
      if (!is_let_in) transport_.close(opened->connection);
    } else {
      reached(*opened, now);
    }
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    if (received->connection != control_) {
      return handle_bulk(received->connection, received->frame, now);
    }
    swarm::Member::Actions actions;
    try {
      actions = member_.received(swarm::decode(received->frame), now);
    } catch (const InputError& error) {
      actions = member_.garbled(error.what(), now);
    }
    act(std::move(actions), now);
  } else if (const auto* writable = std::get_if<net::Writable>(&event)) {
    links_.writable(writable->connection, now);
  } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
    if (lost->connection == control_) return lose_control(lost->reason, now);
    visitors_.take(lost->connection);
    if (const auto number = links_.take_lost(lost->connection)) {
      drop_link(*number, lost->reason, now);
    }
  }
}

void Engine::tick(Time now) {
  if (over_) return;
  if (preparing_) member_.count_moved(1);  // The others may be waiting for what comes after it.
  act(member_.tick(now), now);
  if (over_) return;
  if (now >= redial_.due()) dial();
  check_stalls(now);
  check_links(now);
  ask_again(now);
  if (over_) return;
  links_.lend_some(now);
  if (links_.lends()) lender_.lent(now);
  lender_.tick(now);
  for (const net::ConnectionId mute : visitors_.mute(now)) transport_.close(mute);
}

Time Engine::next_deadline() const {
  return over_ ? Time::max() : std::min({member_.next_deadline(), redial_.due(), links_.due()});
}

void Engine::ready(ReadyReport report) {
  if (over_) return;
  options_.silence_timeout = report.silence_timeout;
  member_.set_silence_timeout(report.silence_timeout);
  newest_rounds_ = std::move(report.newest_rounds);
  act(member_.ready(std::move(report.facts), std::move(report.checkpoints),
                    std::move(report.former)),
      Time{});
}

void Engine::report(const ProgressReport& progress) {
  member_.report(progress.step, progress.loss, progress.tokens_per_s, progress.num_trained);
}

void Engine::request_stop() { act(member_.request_stop(), Time{}); }

void Engine::leave() {
  rounds_.clear();
  act(member_.leave(), Time{});
}

void Engine::trouble(const std::string& reason, Time now) {
  if (!over_ && !member_.run().empty()) act(member_.trouble(reason), now);
}

void Engine::act(swarm::Member::Actions actions, Time now) {
  using swarm::Member;
  for (auto& action : actions) {
    if (auto* send = std::get_if<Member::Send>(&action)) {
      // A coordinator that reads nothing for so long that the queue is full is as good as gone.
      if (transport_.send(control_, swarm::encode(send->message)) == net::Sent::kFull) {
        transport_.close(control_);
      }
    } else if (auto* welcomed = std::get_if<Member::Welcomed>(&action)) {
      listener_.welcomed(welcomed->run, welcomed->config);
    } else if (auto* started = std::get_if<Member::Started>(&action)) {
      start(started->start, now);
    } else if (auto* viewed = std::get_if<Member::Viewed>(&action)) {
      if (!viewed->revocations.empty()) options_.on_revocations(viewed->revocations);
      view(viewed->members, now);
    } else if (auto* exchange = std::get_if<Member::Exchange>(&action)) {
      open(exchange->attempt, now);
    } else if (auto* committed = std::get_if<Member::Committed>(&action)) {
      commit(committed->commit, now);
    } else if (auto* missed = std::get_if<Member::Missed>(&action)) {
      miss(missed->commit, now);
    } else if (auto* leased = std::get_if<Member::Leased>(&action)) {
      listener_.leased(leased->units);
    } else if (auto* takes_part = std::get_if<Member::TakesPart>(&action)) {
      take_part(takes_part->reinstated, now);
    } else if (auto* called = std::get_if<Member::Called>(&action)) {
      const swarm::Due& due = called->due;
      listener_.called({.round = due.header.round,
                        .fragment = due.fragment,
                        .base = due.base,
                        .step = due.step});
    } else if (auto* unreachable = std::get_if<Member::Unreachable>(&action)) {
      options_.on_event(
          AddressUnreachable{.address = unreachable->address, .reason = unreachable->fault});
    } else if (auto* meets = std::get_if<Member::Meets>(&action)) {
      meet_peer(meets->other, meets->meeting, now);
    } else if (auto* passes_on = std::get_if<Member::PassesOn>(&action)) {
      options_.on_circuit(passes_on->circuit);
    } else if (auto* waits = std::get_if<Member::Waits>(&action)) {
      options_.on_event(waits->why.empty() ? Event(WaitOver{}) : WaitBegun{waits->why});
    } else if (std::holds_alternative<Member::Reconnect>(action)) {
      reconnect(now);
    } else if (std::holds_alternative<Member::Left>(action)) {
      over_ = true;
      listener_.left();
    } else if (auto* failed = std::get_if<Member::Failed>(&action)) {
      give_up(failed->reason, failed->ending);
    }
  }
}

void Engine::give_up(const std::string& reason, swarm::Ending ending) {
  if (over_) return;
  over_ = true;
  rounds_.clear();
  links_.close_all();
  for (const net::ConnectionId visitor : visitors_.take_all()) transport_.close(visitor);
  if (control_ != 0) transport_.close(control_);
  listener_.failed(reason, ending);
}

void Engine::lose_control(const std::string& reason, Time now) {
  control_ = 0;
  if (!member_.run().empty()) {
    if (member_.is_member() && !std::exchange(misses_control_, true)) {
      options_.on_event(
          CoordinatorLost{.reason = reason, .patience_s = seconds(options_.return_patience)});
    }
    return act(member_.coordinator_lost(reason, now), now);
  }
  if (now >= give_up_at_) {
    return give_up(
        fmt::format("no coordinator answered at '{}' within {:.0f} s: {}; start it with "
                    "'atoll coordinate', or check the address",
                    options_.coordinator, seconds(options_.connect_patience), reason));
  }
  member_ = swarm::Member(member_options(options_));
  reconnect(now);
  redial_.no_later_than(give_up_at_);
}

/// After a pause that grows with each failure, and a first one that is short.
void Engine::reconnect(Time now) {
  if (control_ != 0) transport_.close(std::exchange(control_, 0));
  redial_.failed(now);
}

void Engine::start(const swarm::Start& start, Time now) {
  StartInfo info{.number = start.number,
                 .num_members = static_cast<int>(start.num_replicas),
                 .start_step = start.start_step,
                 .step = start.step,
                 .term = start.header.term,
                 .joins = start.joins,
                 .returns = start.returns};
  for (const swarm::Peer& peer : start.members) info.members.push_back(peer.name);
  const auto newest_rounds = std::exchange(newest_rounds_, {});
  if (start.returns) {
    for (const auto& round : newest_rounds) lender_.keep(round);
  }
  fetcher_.start(start);
  head_bytes_ = part_head_bytes(member_.header());
  view(start.members, now);
  listener_.leased(start.units);
  listener_.started(info);
}

void Engine::view(const std::vector<swarm::Peer>& members, Time now) {
  if (std::exchange(misses_control_, false)) options_.on_event(CoordinatorBack{});
  redial_.succeeded();
  const Links::Changes changes = links_.view(members, member_.number(), now);
  for (const int32_t number : changes.gone) {
    lender_.forget(number);
    fetcher_.lost(number);
  }
  for (const swarm::Peer& peer : members) names_[peer.number] = peer.name;
  for (const int32_t number : changes.to_dial) {
    if (!over_) dial_peer(number, now);
  }
  for (const auto& [connection, hello] : visitors_.known()) greet(connection, hello, now);
  ask_around(now);
}

void Engine::take_part(const swarm::Reinstated& reinstated, Time now) {
  listener_.reinstated(reinstated.step);
  std::vector<int64_t> due;
  for (const auto& [number, round] : rounds_) {
    if (!round.was_announced && number >= reinstated.first_round) due.push_back(number);
  }
  for (const int64_t number : due) {
    Round& round = rounds_.at(number);
    if (!fetcher_.is_committed(round.contribution->fragment, number)) announce(number, round, now);
  }
}

}  // namespace atl::collective
