#pragma once
// A mutex, a lock and a condition, thin over the standard library's, which Clang can check: what a
// mutex guards says so (ATOLL_GUARDED_BY), a function that must be called with it held says so
// (ATOLL_REQUIRES), and a build with Clang fails where either is broken (-Wthread-safety, in
// cmake/compiler.cmake). For other compilers the marks are nothing.
//
// A condition's predicate is a lambda that reads what the mutex guards, and so is marked too:
//
//   changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return !items_.empty(); });
//
// Out of its sight is what a constructor does before others know of the object.
#include <condition_variable>
#include <mutex>
#include <utility>

#include "atoll/base/clock.h"

#ifdef __clang__
#define ATOLL_THREAD_MARK(mark) __attribute__((mark))
#else
#define ATOLL_THREAD_MARK(mark)
#endif

/// Of a member: it is read and written with that mutex held.
#define ATOLL_GUARDED_BY(mutex) ATOLL_THREAD_MARK(guarded_by(mutex))
/// Of a function: it is called with that mutex held.
#define ATOLL_REQUIRES(...) ATOLL_THREAD_MARK(requires_capability(__VA_ARGS__))
/// Of a function: it calls marked lambdas, of which Clang does not see that their mutex is held.
#define ATOLL_UNCHECKED ATOLL_THREAD_MARK(no_thread_safety_analysis)

namespace atl {

class ATOLL_THREAD_MARK(capability("mutex")) Mutex {
 public:
  void lock() ATOLL_THREAD_MARK(acquire_capability()) { mutex_.lock(); }
  void unlock() ATOLL_THREAD_MARK(release_capability()) { mutex_.unlock(); }
  /// For MutexLock.
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

/// Holds the mutex as long as it lives, but for what lies between unlock() and lock().
class ATOLL_THREAD_MARK(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ATOLL_THREAD_MARK(acquire_capability(mutex))
      : lock_(mutex.native()) {}
  ~MutexLock() ATOLL_THREAD_MARK(release_capability()) {}  // Not defaulted: that has no mark.
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() ATOLL_THREAD_MARK(acquire_capability()) { lock_.lock(); }
  void unlock() ATOLL_THREAD_MARK(release_capability()) { lock_.unlock(); }
  /// For Condition.
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Waits for what another thread changes with the mutex held. Waits may end early, but for those
/// with a predicate.
class Condition {
 public:
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

  void wait(MutexLock& lock) { condition_.wait(lock.native()); }
  template <typename Predicate>
  void wait(MutexLock& lock, Predicate holds) {
    condition_.wait(lock.native(), std::move(holds));
  }
  void wait_for(MutexLock& lock, Duration patience) {
    condition_.wait_for(lock.native(), patience);
  }
  /// Whether it holds.
  template <typename Predicate>
  bool wait_for(MutexLock& lock, Duration patience, Predicate holds) {
    return condition_.wait_for(lock.native(), patience, std::move(holds));
  }

 private:
  std::condition_variable condition_;
};

}  // namespace atl
