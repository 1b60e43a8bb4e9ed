#include "atoll/net/thread_crew.h"

#include <utility>

namespace atl::net {

ThreadCrew::~ThreadCrew() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void ThreadCrew::run(Task task) {
  const MutexLock lock(mutex_);
  if (is_ending_) return;
  waiting_.push(std::move(task));
  if (waiting_.size() > num_idle_ && threads_.size() < most_) {
    threads_.emplace_back([this] { work(); });
  }
  changed_.notify_one();
}

void ThreadCrew::work() {
  MutexLock lock(mutex_);
  while (true) {
    ++num_idle_;
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return is_ending_ || !waiting_.empty(); });
    --num_idle_;
    if (is_ending_) return;
    const Task task = std::move(waiting_.front());
    waiting_.pop();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace atl::net
