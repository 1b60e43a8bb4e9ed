#pragma once
// Where the seconds of an island's process go. Who waits or works adds what it took; what is known
// of rounds (they run beside training) is the strategy's and comes in when the sums are asked for.
// LibTorch-free. One owner thread.
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
  /// The first step of this process: what came before it is no part of its training.
  void training_begins();
  double training() const { return of(On::kTraining); }
  /// That training waited; `blocked` of it for rounds.
  double waited(double blocked) const { return blocked + of(On::kRows); }
  /// Training stood still for rounds for `stalled`, of which it waited for others `blocked`.
  SecondsSpent spent(double stalled, double blocked) const;

 private:
  double of(On what) const { return seconds_[static_cast<size_t>(what)]; }

  std::array<double, 5> seconds_{};
};

}  // namespace atl::run
