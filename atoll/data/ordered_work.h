#pragma once
// Jobs made by one thread, done by several, and handed out in the order they were made: what comes
// out does not depend on how many threads there are. Between them lie at most `max_bytes` of jobs
// (one, however large), done or not, so a slow reader holds up the maker and memory stays bounded.
//
// next() belongs to one thread. Destroying the object ends the work, wherever it is.
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "atoll/base/mutex.h"

namespace atl::data {

template <typename Job, typename Done>
class OrderedWork {
 public:
  /// Takes a job of so many bytes; false when nobody wants more.
  using Push = std::function<bool(Job job, int64_t num_bytes)>;
  using Worker = std::function<Done(Job job)>;

  /// `make` runs once, on a thread of its own; each of `num_threads` workers gets a Worker of its
  /// own from `make_worker`, which is called on this thread.
  OrderedWork(int64_t num_threads, int64_t max_bytes, std::function<void(const Push&)> make,
              const std::function<Worker()>& make_worker)
      : OrderedWork(max_bytes) {  // From here on the destructor ends what was begun.
    for (int64_t i = 0; i < num_threads; ++i) {
      threads_.emplace_back([this, worker = make_worker()] { work(worker); });
    }
    threads_.emplace_back([this, make = std::move(make)] { run(make); });
  }
  ~OrderedWork() {
    {
      const MutexLock lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
  }
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  /// The next result, or nothing at the end. Throws what its job, or the making of it, threw: what
  /// came before is out by then, whichever thread failed first.
  std::optional<Done> next() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) {
      return slots_.empty() ? is_made_ : slots_.front().is_ready();
    });
    if (slots_.empty()) return std::nullopt;
    Slot slot = std::move(slots_.front());
    slots_.pop_front();
    if (num_started_ > 0) --num_started_;  // The maker's failure was never started.
    num_bytes_ -= slot.num_bytes;
    lock.unlock();
    changed_.notify_all();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.done);
  }

 private:
  explicit OrderedWork(int64_t max_bytes) : max_bytes_(max_bytes) {}

  struct Slot {
    std::optional<Job> job;
    int64_t num_bytes = 0;
    std::optional<Done> done;
    std::exception_ptr error;

    bool is_ready() const { return done.has_value() || error; }
  };

  bool push(Job job, int64_t num_bytes) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) {
      return is_stopped_ || slots_.empty() || num_bytes_ + num_bytes <= max_bytes_;
    });
    if (is_stopped_) return false;
    slots_.push_back({.job = std::move(job), .num_bytes = num_bytes});
    num_bytes_ += num_bytes;
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  void run(const std::function<void(const Push&)>& make) {
    std::exception_ptr error;
    try {
      make([this](Job job, int64_t num_bytes) { return push(std::move(job), num_bytes); });
    } catch (...) {
      error = std::current_exception();
    }
    {
      const MutexLock lock(mutex_);
      if (error) slots_.push_back({.error = error});
      is_made_ = true;
    }
    changed_.notify_all();
  }

  void work(const Worker& worker) {
    MutexLock lock(mutex_);
    for (;;) {
      changed_.wait(lock,
                    [&]() ATOLL_REQUIRES(mutex_) { return is_stopped_ || has_job() || is_made_; });
      if (is_stopped_ || !has_job()) return;
      Slot& slot = slots_[num_started_++];  // A deque keeps it in place until it is taken.
      Job job = std::move(*slot.job);
      lock.unlock();
      std::optional<Done> done;
      std::exception_ptr error;
      try {
        done = worker(std::move(job));
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot.done = std::move(done);
      slot.error = error;
      changed_.notify_all();
    }
  }

  /// A slot without a job is the maker's failure, the last of all.
  bool has_job() const ATOLL_REQUIRES(mutex_) {
    return num_started_ < slots_.size() && slots_[num_started_].job;
  }

  int64_t max_bytes_;
  Mutex mutex_;
  Condition changed_;
  /// In order; the first num_started_ are being worked on or done.
  std::deque<Slot> slots_ ATOLL_GUARDED_BY(mutex_);
  size_t num_started_ ATOLL_GUARDED_BY(mutex_) = 0;
  int64_t num_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool is_made_ ATOLL_GUARDED_BY(mutex_) = false;
  bool is_stopped_ ATOLL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // Last: they use all of the above, and are joined first.
};

}  // namespace atl::data
