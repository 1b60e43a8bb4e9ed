#pragma once
// A run's checkpoints as training sees them: begun between steps, copied beside them, and what that
// costs. LibTorch-free. One owner thread.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/method/train_options.h"
#include "atoll/run/time_spent.h"
#include "atoll/weights/checkpoint.h"

namespace atl::island {

/// Where a run's checkpoints lie.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder);

/// Where process 0 of so many has what method::spills_to_disk() speaks of; empty: in memory.
std::filesystem::path spill_folder(const std::filesystem::path& run_folder,
                                   const method::TrainOptions& train, int64_t num_processes);

class Checkpoints {
 public:
  /// In `run_folder`; `keep` 0 keeps all. `clock` and `time` outlive it.
  Checkpoints(const std::filesystem::path& run_folder, int64_t keep, weights::StagingPlace place,
              const Clock& clock, run::TimeSpent& time);

  /// Makes room for checkpoints like this one.
  void reserve(const weights::CheckpointContents& contents) { writer_.reserve(contents); }
  /// Begins the one of `step`, unless that was the last one. Throws InputError if the one before
  /// could not be written.
  void begin(int64_t step, const std::function<weights::CheckpointContents()>& contents);
  /// Training waits until the one under way does not read parameters and state any more.
  void release();
  /// The same where the time that this takes is counted otherwise.
  void wait_until_copied() { writer_.release(clock_); }
  /// A step is past what the checkpoint before it can hold up.
  void step_goes_on();
  /// The one under way reaches the disk. Why not, if it does not.
  std::optional<std::string> finish() { return writer_.finish(); }
  /// The longest that one of them held training up, in seconds.
  double longest_stall() const { return longest_stall_; }

 private:
  std::filesystem::path folder_;
  const Clock& clock_;
  run::TimeSpent& time_;
  weights::CheckpointWriter writer_;
  int64_t step_ = -1;  // Of the last one.
  double stall_ = 0;   // Of that.
  double longest_stall_ = 0;
};

}  // namespace atl::island
