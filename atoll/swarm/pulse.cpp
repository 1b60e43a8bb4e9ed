#include "atoll/swarm/pulse.h"

namespace atl::swarm {

void Pulse::report(const Heartbeat& progress) {
  progress_ = progress;
  const bool is_due = report_every_ > 0 && progress.num_trained - num_reported_ >= report_every_;
  if (is_due) next_ = {};  // At the next tick.
}

Heartbeat Pulse::beat(Time now) {
  rest(now);
  num_reported_ = progress_.num_trained;
  Heartbeat heartbeat = progress_;
  heartbeat.moved = moved_;
  return heartbeat;
}

}  // namespace atl::swarm
