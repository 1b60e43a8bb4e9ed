#pragma once
// Where the seconds of an island's process go. Who waits or works adds what it took; what is known
// of rounds (they run beside training) is the strategy's and comes in when the sums are asked for.
// LibTorch-free. One owner thread.
#include <algorithm>
#include <array>
#include <cstdint>

#include "atoll/run/progress.h"

namespace atl::run {

class TimeSpent {
 public:
  enum class On : uint8_t {
    kTraining,  // From the beginning of a step to its end. In it are:
    kRows,      // waiting for rows to train on,
    kRelease,   // and for a checkpoint that reads what would change.
    kCheckpoints,
    kValidation,
  };

  void add(On what, double seconds) { seconds_[static_cast<size_t>(what)] += seconds; }
  /// The first step of this process: what came before it is no part of its training. Of steps that
  /// were computed again the training counts, for they were taken once more.
  void training_begins() {
    for (const On what : {On::kRelease, On::kCheckpoints, On::kValidation}) {
      seconds_[static_cast<size_t>(what)] = 0;
    }
  }
  double training() const { return of(On::kTraining); }
  /// That training waited; `blocked` of it for rounds.
  double waited(double blocked) const { return blocked + of(On::kRows); }
  /// Training stood still for rounds for `stalled`, of which it waited for others `blocked`.
  SecondsSpent spent(double stalled, double blocked) const {
    const double release = of(On::kRelease);
    return {.computing = std::max(0.0, training() - stalled - of(On::kRows) - release),
            .handling = std::max(0.0, stalled - blocked),
            .waiting = waited(blocked),
            .validation = of(On::kValidation),
            .checkpoints = of(On::kCheckpoints) + release};
  }

 private:
  double of(On what) const { return seconds_[static_cast<size_t>(what)]; }

  std::array<double, 5> seconds_{};
};

}  // namespace atl::run
