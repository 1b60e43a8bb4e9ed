#include "atoll/island/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/method/sharding.h"

namespace atl::island {

std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder) {
  return run_folder / "checkpoints";
}

std::filesystem::path spill_folder(const std::filesystem::path& run_folder,
                                   const method::TrainOptions& train, int64_t num_processes) {
  return method::spills_to_disk(train, num_processes) ? checkpoint_folder(run_folder)
                                                      : std::filesystem::path();
}

Checkpoints::Checkpoints(const std::filesystem::path& run_folder, int64_t keep,
                         weights::StagingPlace place, const Clock& clock, run::TimeSpent& time)
    : folder_(checkpoint_folder(run_folder)),
      clock_(clock),
      time_(time),
      writer_(folder_, keep, place) {}

void Checkpoints::begin(int64_t step,
                        const std::function<weights::CheckpointContents()>& contents) {
  if (step == step_) return;
  const Time begin = clock_.now();
  if (const auto error = writer_.finish()) {
    const auto valid = weights::list_checkpoints(folder_);
    throw InputError(fmt::format(
        "a checkpoint could not be written: {}; {}", *error,
        valid.empty() ? "there is none yet" : "the last one is " + valid.back().second.string()));
  }
  step_ = step;
  writer_.begin(contents());
  stall_ = seconds(clock_.now() - begin);
  time_.add(run::TimeSpent::On::kCheckpoints, stall_);
}

void Checkpoints::release() {
  const double held_up = writer_.release(clock_);
  stall_ += held_up;
  time_.add(run::TimeSpent::On::kRelease, held_up);
}

void Checkpoints::step_goes_on() {
  longest_stall_ = std::max(longest_stall_, std::exchange(stall_, 0.0));
}

}  // namespace atl::island
