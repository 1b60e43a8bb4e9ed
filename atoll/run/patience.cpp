#include "atoll/run/patience.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/method/method.h"
#include "atoll/run/events.h"
#include "atoll/run/progress.h"

namespace atl::run {
namespace {

constexpr int64_t kPeriods = 3;  // Of steps in a row that cannot be used.

}  // namespace

Patience::Patience(const method::SyncOptions& sync, int num_members, EventSink events)
    : sync_(sync), is_alone_(num_members == 1), events_(std::move(events)) {}

bool Patience::can_use(int64_t step, double loss, double grad_norm) {
  if (std::isfinite(loss) && std::isfinite(grad_norm)) {
    unusable_in_a_row_ = 0;
    return true;
  }
  unusable_in_a_row_ += 1;
  const std::string what = std::isfinite(loss) ? fmt::format("gradient norm is {}", grad_norm)
                                               : fmt::format("loss is {}", loss);
  if (is_alone_ || unusable_in_a_row_ > kPeriods * method::period(sync_)) {
    throw InputError(fmt::format(
        "the {} at step {}: training diverged; {}, so start a "
        "new one with a lower train.lr, a longer train.warmup_steps or a train.grad_clip "
        "(--init CHECKPOINT: from a checkpoint of this one)",
        what, step, kKeepsSettings));
  }
  events_(StepLeftOut{.step = step, .what = what});
  return false;
}

void Patience::note_round(const collective::Commit& commit, bool abstained) {
  if (sync_.outer_dropout > 0 || !commit.included) return;  // There it is meant, or no fault.
  abstained_in_a_row_ = abstained ? abstained_in_a_row_ + 1 : 0;
  if (!abstained) return;
  abstained_ += 1;
  const std::string why =
      commit.left_out
          ? std::string(
                "the others could not use it, or it was unlike what islands usually contribute "
                "(the coordinator says how)")
          : fmt::format("it was not finite, or more than sync.codec = '{}' can hold",
                        method::codec_name(sync_));
  const PartLeftOut left_out{.round = commit.round, .reason = why};
  if (!is_alone_ && abstained_in_a_row_ <= kPeriods * method::num_fragments(sync_)) {
    return events_(left_out);
  }
  const std::string remedy =
      commit.left_out
          ? std::string("look at this island's machine and at its events: the others go on")
          : fmt::format(
                "{}, so start a new one with a codec for larger numbers (bf16, fp32) or "
                "settings that keep them smaller (train.lr, train.grad_clip)",
                kKeepsSettings);
  throw InputError(fmt::format("{}, and so were {} before it; {}", left_out.what(),
                               abstained_in_a_row_ - 1, remedy));
}

}  // namespace atl::run
