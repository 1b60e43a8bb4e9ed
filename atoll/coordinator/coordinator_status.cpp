// What the coordinator tells an operator. It decides nothing here.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/coordinator/coordinator.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

RunStatus Coordinator::status(Time now) const {
  RunStatus run{.run = options_.run,
                .term = book_.term(),
                .view = view_,
                .step = book_.last_step(),
                .uptime_s = events_.uptime_s(now),
                .wanted = options_.replicas,
                .events = events_.all()};
  if (book_.last_round() >= 0) run.round = book_.last_round();
  if (options_.steps > 0) run.steps = options_.steps;
  run.state = finished_                ? RunState::kOver
              : pace_->is_stopping()   ? RunState::kStopping
              : roster_.num_live() > 0 ? RunState::kTraining
                                       : RunState::kGathering;
  for (const auto& [connection, guest] : guests_.all()) {
    run.islands.push_back({.name = guest.hello.name,
                           .address = printable(guest.hello.address),
                           .state = IslandState::kJoining,
                           .reason = guest.ready ? "ready, waits for the others" : "",
                           .heard_s = seconds(now - guest.heard)});
    run.live += 1;
  }
  for (const auto& [number, seat] : roster_.seats()) {
    run.islands.push_back(seat.status(book_.members().at(number), now));
    if (seat.connection() && seat.is_here()) run.live += 1;
  }
  std::ranges::sort(run.islands, {}, &IslandStatus::name);
  run.relays = meetings_.status();
  const Pairs broken = links_.broken();
  const std::vector<int32_t> active = roster_.in(State::kActive);
  for (const int32_t a : active) {
    for (const int32_t b : active) {
      const Meetings::Detour* const detour = a < b ? meetings_.detour({a, b}) : nullptr;
      const bool is_broken = broken.contains({a, b});
      if (detour == nullptr && !is_broken) continue;
      run.ways.push_back({.islands = {name(a), name(b)},
                          .way = is_broken ? "none" : std::string(net::name_of(detour->way)),
                          .relay = is_broken ? "" : detour->relay});
    }
  }
  tally_.fill(run, now);
  if (const std::string waits = why_waits(); !waits.empty() && book_.has_begun()) {
    run.alarm = run.alarm.empty() ? waits : waits + "; " + run.alarm;
    run.seconds_left.reset();
  }
  return run;
}

std::string Coordinator::why_waits() const {
  if ((pace_->is_stopping() && !options_.ends_together) || finished_) return {};
  if (roster_.num_live() == 0 && !gathering_.notice().empty()) return gathering_.notice();
  if (quorum_.waits()) return quorum_.why_waits(roster_.num_live());
  if (rounds_.any_lacks_links()) return quorum_.why_broken_off();
  if (book_.has_begun() || guests_.empty()) return {};
  return fmt::format("{} of {} islands are here", guests_.num_ready(), options_.replicas);
}

void Coordinator::count(const Committed& committed) {
  CountedCommit counted{.round = committed.held.round,
                        .fragment = committed.held.fragment,
                        .step = committed.held.step};
  for (size_t i = 0; i < committed.members.size(); ++i) {
    counted.weights[committed.members[i]] = committed.weights[i];
  }
  const std::vector<int32_t> awaited = roster_.expected(committed.held.round);
  tally_.add(counted, {awaited.begin(), awaited.end()}, now_);
}

}  // namespace atl::swarm
