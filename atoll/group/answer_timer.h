#pragma once
// Whether the store still answers. c10d's calls to it read without a limit, so where process 0
// hangs or its machine is gone, no thread that asks it comes back to say so. This one asks nothing.
#include <cstdint>
#include <functional>
#include <thread>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"

namespace atl::group {

class AnswerTimer {
 public:
  /// Without an answer for `limit`, `give_up` is called with how long it was, once, on the timer's
  /// thread.
  AnswerTimer(Duration limit, const Clock& clock, std::function<void(Duration silence)> give_up);
  ~AnswerTimer();

  void answered();
  /// Nobody asks any more.
  void stop();

 private:
  void run();

  const Duration limit_;
  const Clock& clock_;
  const std::function<void(Duration)> give_up_;
  Mutex mutex_;
  Condition changed_;
  Time last_answer_ ATOLL_GUARDED_BY(mutex_);
  int64_t num_looks_ ATOLL_GUARDED_BY(mutex_) = 0;  // Since then.
  bool ends_ ATOLL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace atl::group
