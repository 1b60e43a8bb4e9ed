#include "atoll/run/time_spent.h"

#include <algorithm>

namespace atl::run {

void TimeSpent::training_begins() {
  // Of steps that were computed again the training counts: it took them once more.
  for (const On what : {On::kRelease, On::kCheckpoints, On::kValidation}) {
    seconds_[static_cast<size_t>(what)] = 0;
  }
}

SecondsSpent TimeSpent::spent(double stalled, double blocked) const {
  const double rows = of(On::kRows);
  const double release = of(On::kRelease);
  return {.computing = std::max(0.0, training() - stalled - rows - release),
          .handling = std::max(0.0, stalled - blocked),
          .waiting = waited(blocked),
          .validation = of(On::kValidation),
          .checkpoints = of(On::kCheckpoints) + release};
}

}  // namespace atl::run
