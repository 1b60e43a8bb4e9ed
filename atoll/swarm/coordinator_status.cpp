// What the coordinator tells an operator. It decides nothing here.
#include <algorithm>

#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

RunStatus Coordinator::status(Time now) const {
  RunStatus run{.run = options_.run,
                .term = options_.term,
                .view = started_ ? uint64_t{1} : 0,
                .step = last_step_,
                .uptime_s = seconds(now - began_),
                .wanted = num_replicas(),
                .events = {events_.begin(), events_.end()}};
  if (last_round_ >= 0) run.round = last_round_;
  if (options_.steps > 0) run.steps = options_.steps;
  run.state = finished_         ? RunState::kOver
              : stop_requested_ ? RunState::kStopping
              : started_        ? RunState::kTraining
                                : RunState::kGathering;
  for (const auto& [connection, island] : islands_) {
    run.islands.push_back(status_of(island,
                                    island.left ? IslandState::kLeft
                                    : started_  ? IslandState::kTraining
                                                : IslandState::kJoining,
                                    now));
    if (!island.left) run.live += 1;
  }
  for (const auto& [number, island] : away_) {
    run.islands.push_back(status_of(island, IslandState::kAway, now));
  }
  std::ranges::sort(run.islands, {}, &IslandStatus::name);
  tally_.fill(run, now);
  return run;
}

IslandStatus Coordinator::status_of(const Island& island, IslandState state, Time now) const {
  IslandStatus status{.name = island.hello.name,
                      .address = printable(island.hello.address),
                      .state = state,
                      .reason = printable(island.reason),
                      .step = island.progress.step,
                      .heard_s = seconds(now - island.heard)};
  if (started_) status.number = number_of(island);
  if (state == IslandState::kJoining && island.ready) status.reason = "ready, waits for the others";
  if (island.progress.step > 0) {
    status.loss = island.progress.loss;
    status.tokens_per_s = island.progress.tokens_per_s;
  }
  return status;
}

}  // namespace atl::swarm
