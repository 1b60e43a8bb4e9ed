#pragma once
// A thread that runs one job at a time for another thread, which has events to see to meanwhile.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace atl::collective {

/// Thread-safe, but for the destructor, which waits for the job that runs.
class Worker {
 public:
  /// Waits for the one before, if it runs.
  void start(std::function<void()> job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !job_; });
    job_ = std::move(job);
    changed_.notify_all();
  }
  /// Returns when none runs.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !job_; });
  }

 private:
  void loop(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return job_ != nullptr; })) {
      lock.unlock();
      job_();  // The others only ask whether it is there.
      lock.lock();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<void()> job_;  // Until it is done.
  std::jthread thread_{[this](const std::stop_token& stop) { loop(stop); }};
};

}  // namespace atl::collective
