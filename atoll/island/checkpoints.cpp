#include "atoll/island/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"

namespace atl::island {

Checkpoints::Checkpoints(const std::filesystem::path& run_folder, int64_t keep, const Clock& clock,
                         run::TimeSpent& time)
    : folder_(run_folder / "checkpoints"), clock_(clock), time_(time), writer_(folder_, keep) {}

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
