#pragma once
// When to try again to connect: after a pause that grows with each failure. Pure.
#include <algorithm>

#include "atoll/base/clock.h"

namespace atl::collective {

class Backoff {
 public:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(100);
  static constexpr Duration kLongestPause = std::chrono::seconds(2);

  void failed(Time now) {
    due_ = now + pause_;
    pause_ = std::min(pause_ * 2, kLongestPause);
  }
  /// The next failure is the first one again.
  void succeeded() { pause_ = kFirstPause; }
  /// Nothing is due until that has failed too.
  void tried() { due_ = Time::max(); }
  /// Whatever the pause.
  void no_later_than(Time time) { due_ = std::min(due_, time); }

  Time due() const { return due_; }

 private:
  Time due_ = Time::max();
  Duration pause_ = kFirstPause;
};

}  // namespace atl::collective
