#pragma once
// Threads made as they are needed, up to a number; then work waits its turn. Thread-safe.
#include <cstddef>
#include <functional>
#include <queue>
#include <thread>
#include <vector>

#include "atoll/base/mutex.h"

namespace atl::net {

class ThreadCrew {
 public:
  using Task = std::function<void()>;

  explicit ThreadCrew(size_t most) : most_(most) {}
  /// Ends what runs; what waits is dropped.
  ~ThreadCrew();
  ThreadCrew(const ThreadCrew&) = delete;
  ThreadCrew& operator=(const ThreadCrew&) = delete;

  void run(Task task);

 private:
  void work();

  const size_t most_;
  Mutex mutex_;
  Condition changed_;
  std::queue<Task> waiting_ ATOLL_GUARDED_BY(mutex_);
  size_t num_idle_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool is_ending_ ATOLL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::net
