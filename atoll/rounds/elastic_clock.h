#pragma once
// Where a run of elastic pace stands, as one member counts it: learning rates and logs need a step.
// The run's step is a fact only at a commit: the tokens that were committed, in global batches.
// From there a member goes on by its own steps, each worth as many of the run's as they were
// between the last two commits, for as long as that took: what comes of a pause is no pace. Pure.
#include <algorithm>
#include <cstdint>

namespace atl::rounds {

class ElasticClock {
 public:
  /// The run ends with `last_step`.
  explicit ElasticClock(int64_t last_step) : last_step_(last_step) {}

  /// The run stands at `step`.
  void start(int64_t step) { *this = ElasticClock(last_step_, step); }
  /// This member took a step.
  void trained() {
    own_ += 1;
    since_commit_ += 1;
    now_ = std::max(now_, std::min(estimate(), last_step_ - 1));  // The last one is a commit's.
  }
  /// A commit up to `step` was applied; `own` steps of this member are not in it.
  void committed(int64_t step, int64_t own) {
    has_commit_ = true;
    if (since_commit_ > 0 && step > step_) {
      rate_ = static_cast<double>(step - step_) / static_cast<double>(since_commit_);
    }
    before_ = step_;
    step_ = step;
    own_ = own;
    since_commit_ = 0;
    now_ = step >= last_step_ ? last_step_ : std::max(now_, std::min(estimate(), last_step_ - 1));
  }
  /// Never falls.
  int64_t now() const { return now_; }
  /// Of the last commit.
  int64_t committed_step() const { return step_; }
  /// Whether a multiple of `every` was reached with the last commit.
  bool crossed(int64_t every) const { return every > 0 && before_ / every != step_ / every; }

 private:
  ElasticClock(int64_t last_step, int64_t step)
      : last_step_(last_step), step_(step), before_(step), now_(step) {}
  int64_t estimate() const {
    const auto ahead = static_cast<int64_t>(rate_ * static_cast<double>(own_));
    return step_ + (has_commit_ ? std::min(ahead, step_ - before_) : ahead);
  }

  int64_t last_step_;
  int64_t step_ = 0;    // Committed.
  int64_t before_ = 0;  // The commit before.
  bool has_commit_ = false;
  int64_t now_ = 0;
  int64_t own_ = 0;           // Own steps that are not in step_,
  int64_t since_commit_ = 0;  // and those since it was applied.
  double rate_ = 1;           // Steps of the run for each own one.
};

}  // namespace atl::rounds
