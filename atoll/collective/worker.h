#pragma once
// A thread that runs one job at a time for another thread, which has events to see to meanwhile.
#include <functional>
#include <thread>
#include <utility>

#include "atoll/base/mutex.h"

namespace atl::collective {

/// Thread-safe, but for the destructor, which waits for the job that runs.
class Worker {
 public:
  Worker() {
    thread_ = std::jthread([this] { loop(); });
  }
  ~Worker() {
    {
      const MutexLock lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Waits for the one before, if it runs.
  void start(std::function<void()> job) {
    MutexLock lock(mutex_);
    while (is_busy_) changed_.wait(lock);
    is_busy_ = true;
    job_ = std::move(job);
    changed_.notify_all();
  }
  /// Returns when none runs.
  void wait() {
    MutexLock lock(mutex_);
    while (is_busy_) changed_.wait(lock);
  }

 private:
  void loop() {
    MutexLock lock(mutex_);
    while (true) {
      while (!job_ && !is_ending_) changed_.wait(lock);
      if (!job_) return;
      std::function<void()> job = std::exchange(job_, nullptr);
      lock.unlock();
      job();
      job = nullptr;  // What it holds is released without the lock.
      lock.lock();
      is_busy_ = false;
      changed_.notify_all();
    }
  }

  Mutex mutex_;
  Condition changed_;
  std::function<void()> job_ ATOLL_GUARDED_BY(mutex_);  // Until it runs.
  bool is_busy_ ATOLL_GUARDED_BY(mutex_) = false;       // With one that runs, or is about to.
  bool is_ending_ ATOLL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace atl::collective
