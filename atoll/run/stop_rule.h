#pragma once
// Who may end training before its last step: the user ends the whole run, or takes this island
// alone out of it. When it may leave, the rounds say. LibTorch-free. One owner thread.
#include <functional>
#include <utility>

namespace atl::run {

/// What is asked of the outside; each may be empty.
struct StopWishes {
  /// True once the user asked to stop.
  std::function<bool()> interrupted;
  /// Asks all islands to stop together; empty: this replica is alone and stops after the step.
  std::function<void()> request_stop;
  /// True once this island alone is to leave the run.
  std::function<bool()> leaves;
};

class StopRule {
 public:
  explicit StopRule(StopWishes wishes) : wishes_(std::move(wishes)) {}

  /// After each step: passes the user's wish on, once.
  void listen() {
    if (has_asked_ || !wishes_.interrupted || !wishes_.interrupted()) return;
    has_asked_ = true;
    if (wishes_.request_stop) wishes_.request_stop();
  }
  /// `is_agreed`: all islands end here.
  bool ends_run(bool is_agreed) const { return wishes_.request_stop ? is_agreed : has_asked_; }
  bool leaves() const { return wishes_.leaves && wishes_.leaves(); }
  void leave() { has_left_ = true; }
  /// This island alone trains no more.
  bool has_left() const { return has_left_; }

 private:
  StopWishes wishes_;
  bool has_asked_ = false;
  bool has_left_ = false;
};

}  // namespace atl::run
