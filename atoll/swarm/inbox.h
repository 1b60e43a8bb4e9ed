#pragma once
// What other threads want done, in order, for one thread that waits for work or the time. Pushing
// never blocks: a queue over its bound is closed instead, and the owner ends the run. (Blocking a
// transport's thread could stop the very sends that would empty the queue.)
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"

namespace atl::swarm {

/// Thread-safe.
template <typename Item>
class Inbox {
 public:
  explicit Inbox(size_t max_bytes) : max_bytes_(max_bytes) {}

  /// `bytes` is what the item holds beyond itself; both count, so that empty ones are bounded too.
  void push(Item item, size_t bytes = 0) {
    bytes += sizeof(std::pair<Item, size_t>);
    const MutexLock lock(mutex_);
    if (closed_ || overflowed_) return;
    if (num_bytes_ + bytes > max_bytes_) {
      overflowed_ = true;
      overflow_seen_ = false;
    } else {
      num_bytes_ += bytes;
      items_.emplace_back(std::move(item), bytes);
    }
    arrived_.notify_one();
  }

  /// The next item; nothing after `patience`, when closed, or once when overflowed and empty.
  std::optional<Item> pop(Duration patience) {
    MutexLock lock(mutex_);
    arrived_.wait_for(lock, patience, [&]() ATOLL_REQUIRES(mutex_) {
      return !items_.empty() || closed_ || !overflow_seen_;
    });
    if (items_.empty()) {
      overflow_seen_ = true;
      return std::nullopt;
    }
    auto [item, bytes] = std::move(items_.front());
    items_.pop_front();
    num_bytes_ -= bytes;
    return std::move(item);
  }

  /// Drops what comes from here on.
  void close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    arrived_.notify_one();
  }
  bool overflowed() const {
    const MutexLock lock(mutex_);
    return overflowed_;
  }

 private:
  mutable Mutex mutex_;
  Condition arrived_;
  std::deque<std::pair<Item, size_t>> items_ ATOLL_GUARDED_BY(mutex_);
  size_t num_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  const size_t max_bytes_;
  bool closed_ ATOLL_GUARDED_BY(mutex_) = false;
  bool overflowed_ ATOLL_GUARDED_BY(mutex_) = false;
  bool overflow_seen_ ATOLL_GUARDED_BY(mutex_) = true;
};

}  // namespace atl::swarm
