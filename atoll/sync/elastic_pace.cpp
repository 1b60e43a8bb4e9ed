// Elastic pace: rounds are begun when the run calls them, one at a time, and training goes on until
// the result is there.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/sync/strategy.h"

namespace atl::sync {

Result<void> Strategy::go_on() {
  if (begun_ && averager_.is_decided(begun_->round)) {
    if (auto taken = take_begun(); !taken) return taken;
  }
  if (auto due = averager_.take_due()) due_ = due;
  if (!due_ || begun_ || !begins_ || stats_.stop_requested) return {};
  const int64_t num_fragments = std::ssize(applied_);
  if (due_->fragment >= num_fragments) {
    return failure(fmt::format("the coordinator called a round of fragment {}, of {} fragments",
                               due_->fragment, num_fragments));
  }
  if (is_applied(due_->fragment, due_->round)) {
    due_.reset();
    return {};
  }
  // A newcomer's fragments are of different rounds: what it has missed comes first.
  if (!missed_) missed_ = averager_.take_missed();
  const bool has_base = due_->base < 0 || is_applied(due_->base % num_fragments, due_->base);
  if (missed_ || !has_base) return {};
  begun_ = std::exchange(due_, std::nullopt);
  launch_due(*begun_);
  return {};
}

/// Rounds are of the fragments in turn.
bool Strategy::has_last_rounds() const {
  const std::scoped_lock lock(state_mutex_);
  return last_round_ >= 0 &&
         *std::ranges::min_element(applied_) > last_round_ - std::ssize(applied_);
}

/// A commit of a later round comes after its own.
Result<bool> Strategy::settle(int64_t round) {
  if (!begun_ || begun_->round >= round) return false;
  if (auto taken = take_begun(); !taken) return tl::unexpected(taken.error());
  return true;
}

Result<void> Strategy::take_begun() {
  const collective::DueRound begun = *std::exchange(begun_, std::nullopt);
  const auto fate = wait(begun.round);
  if (!fate) return tl::unexpected(fate.error());
  take(begun.round, *fate);
  // What was unlearned is nobody's.
  if (*fate == Fate::kAbstained || *fate == Fate::kLeftOut) set_steps_since(begun.fragment, 0);
  return {};
}

}  // namespace atl::sync
