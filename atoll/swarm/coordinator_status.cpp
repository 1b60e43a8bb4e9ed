// What the coordinator tells an operator. It decides nothing here.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

RunStatus Coordinator::status(Time now) const {
  RunStatus run{.run = options_.run,
                .term = book_.term(),
                .view = view_,
                .step = book_.last_step(),
                .uptime_s = seconds(now - began_),
                .wanted = options_.replicas,
                .events = {events_.begin(), events_.end()}};
  if (book_.last_round() >= 0) run.round = book_.last_round();
  if (options_.steps > 0) run.steps = options_.steps;
  run.state = finished_         ? RunState::kOver
              : stop_requested_ ? RunState::kStopping
              : num_live() > 0  ? RunState::kTraining
                                : RunState::kGathering;
  for (const auto& [connection, guest] : guests_) {
    run.islands.push_back({.name = guest.hello.name,
                           .address = printable(guest.hello.address),
                           .state = IslandState::kJoining,
                           .reason = guest.ready ? "ready, waits for the others" : "",
                           .heard_s = seconds(now - guest.heard)});
    run.live += 1;
  }
  for (const auto& [number, seat] : seats_) {
    run.islands.push_back(status_of(number, seat, now));
    const bool is_here = is_live(seat) || seat.state == State::kBehind;
    if (seat.connection && is_here) run.live += 1;
  }
  std::ranges::sort(run.islands, {}, &IslandStatus::name);
  tally_.fill(run, now);
  if (const std::string waits = why_waits(); !waits.empty() && book_.has_begun()) {
    run.alarm = run.alarm.empty() ? waits : waits + "; " + run.alarm;
    run.seconds_left.reset();
  }
  return run;
}

std::string Coordinator::why_waits() const {
  if ((stop_requested_ && !options_.ends_together) || finished_) return {};
  if (num_live() == 0 && !gather_notice_.empty()) return gather_notice_;
  if (waits_for_more_) {
    return fmt::format("rounds wait: {} of at least {} islands (swarm.min_replicas)", num_live(),
                       options_.min_replicas);
  }
  if (book_.has_begun() || guests_.empty()) return {};
  const auto num_ready = std::ranges::count_if(
      guests_, [](const auto& entry) { return entry.second.ready.has_value(); });
  return fmt::format("{} of {} islands are here", num_ready, options_.replicas);
}

IslandStatus Coordinator::status_of(int32_t number, const Seat& seat, Time now) const {
  const Peer& peer = book_.members().at(number);
  IslandStatus status{.name = peer.name,
                      .number = number,
                      .address = printable(peer.address),
                      .step = seat.progress.step,
                      .left_out = seat.left_out,
                      .heard_s = seconds(now - seat.heard)};
  switch (seat.state) {
    case State::kBehind:
      status.state = IslandState::kFetching;
      break;
    case State::kActive:
      status.state = IslandState::kTraining;
      break;
    case State::kLeaving:
    case State::kLeft:
      status.state = IslandState::kLeft;
      break;
    case State::kReturning:
      status.state = IslandState::kAway;
      status.reason = "it has not come back to this coordinator yet";
      break;
    case State::kAway:
      status.state = IslandState::kAway;
      status.reason = printable(seat.reason);
      break;
  }
  if (seat.progress.step > 0) {
    status.loss = seat.progress.loss;
    status.tokens_per_s = seat.progress.tokens_per_s;
  }
  return status;
}

void Coordinator::count(const Committed& committed) {
  CountedCommit counted{.round = committed.held.round,
                        .fragment = committed.held.fragment,
                        .step = committed.held.step};
  for (size_t i = 0; i < committed.members.size(); ++i) {
    counted.weights[committed.members[i]] = committed.weights[i];
  }
  std::set<int32_t> awaited;
  for (const auto& [number, seat] : seats_) {
    if (is_live(seat) && seat.first_round <= committed.held.round) awaited.insert(number);
  }
  tally_.add(counted, awaited, now_);
}

}  // namespace atl::swarm
