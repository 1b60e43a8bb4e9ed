#pragma once
// What has been found out about states of grammars, kept for the next time. Shared by threads.
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "atoll/base/mutex.h"

namespace atl::grammar {

struct StateMask;

class KeptMasks {
 public:
  std::shared_ptr<const StateMask> find(uint32_t state) const {
    const MutexLock lock(mutex_);
    const auto found = masks_.find(state);
    return found == masks_.end() ? nullptr : found->second;
  }
  /// Above kMaxBytes all is forgotten, and found again when it is asked for.
  void keep(uint32_t state, std::shared_ptr<const StateMask> mask, size_t num_bytes) {
    const MutexLock lock(mutex_);
    if (num_bytes_ > kMaxBytes) {
      masks_.clear();
      num_bytes_ = 0;
    }
    if (masks_.emplace(state, std::move(mask)).second) num_bytes_ += num_bytes;
  }

  size_t num_bytes() const {
    const MutexLock lock(mutex_);
    return num_bytes_;
  }

  static constexpr size_t kMaxBytes = size_t{1} << 27;  // 128 MiB.

 private:
  mutable Mutex mutex_;
  std::unordered_map<uint32_t, std::shared_ptr<const StateMask>> masks_ ATOLL_GUARDED_BY(mutex_);
  size_t num_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::grammar
