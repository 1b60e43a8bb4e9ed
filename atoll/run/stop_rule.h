#pragma once
// Who may end training before its last step, and when that is due: the user ends the whole run, or
// takes this island alone out of it, once what it learned is with the others. LibTorch-free. One
// owner thread.
#include <cstdint>
#include <functional>
#include <set>
#include <utility>

namespace atl::run {

/// What is asked of the outside; each may be empty.
struct StopWishes {
  /// True once the user asked to stop.
  std::function<bool()> interrupted;
  /// Asks all islands to stop together; empty: this replica is alone and stops after the step.
  std::function<void()> request_stop;
  /// True once this island alone is to leave the run, after its next sync.
  std::function<bool()> leaves;
};

class StopRule {
 public:
  StopRule(StopWishes wishes, int64_t num_fragments)
      : wishes_(std::move(wishes)), num_fragments_(static_cast<size_t>(num_fragments)) {}

  /// After each step: passes the user's wish on, once.
  void listen() {
    if (has_asked_ || !wishes_.interrupted || !wishes_.interrupted()) return;
    has_asked_ = true;
    if (wishes_.request_stop) wishes_.request_stop();
  }
  /// `is_agreed`: all islands end here.
  bool ends_run(bool is_agreed) const { return wishes_.request_stop ? is_agreed : has_asked_; }
  bool leaves() const { return wishes_.leaves && wishes_.leaves(); }
  /// A committed round.
  void note_round(int32_t fragment, bool with_this_island) {
    if (with_this_island && leaves()) counted_.insert(fragment);
  }
  /// Since it is to leave, this island was in a round of each fragment.
  bool has_counted() const { return counted_.size() == num_fragments_; }

 private:
  StopWishes wishes_;
  size_t num_fragments_;
  bool has_asked_ = false;
  std::set<int32_t> counted_;  // Fragments.
};

}  // namespace atl::run
