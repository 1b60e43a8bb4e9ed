#pragma once
// Memory for encoded segments, used again once all who had a segment have let go of it: fresh
// memory costs more time than encoding does.
#include <memory>
#include <utility>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/mutex.h"
#include "atoll/base/page_pool.h"

namespace atl::collective {

/// Thread-safe. Blobs may outlive the pool and be let go of on any thread.
class BlobPool {
 public:
  /// An empty one.
  std::shared_ptr<Bytes> take() {
    auto bytes = std::make_unique<Bytes>();
    {
      const MutexLock lock(spare_->mutex);
      if (!spare_->blobs.empty()) {
        bytes = std::move(spare_->blobs.back());
        spare_->blobs.pop_back();
      }
    }
    bytes->clear();
    return {bytes.release(), [spare = std::weak_ptr(spare_)](Bytes* blob) {
              std::unique_ptr<Bytes> owned(blob);
              const auto pool = spare.lock();
              if (pool == nullptr) return;
              const MutexLock lock(pool->mutex);
              if (pool->blobs.size() < kMaxSpare) pool->blobs.push_back(std::move(owned));
            }};
  }

 private:
  static constexpr size_t kMaxSpare = 16;  // Of at most a segment each.

  struct Spare {
    Mutex mutex;
    std::vector<std::unique_ptr<Bytes>> blobs ATOLL_GUARDED_BY(mutex);
  };
  std::shared_ptr<Spare> spare_ = std::make_shared<Spare>();
};

/// What one round leaves to the next.
struct RoundMemory {
  PagePool pages;  // For values, and for encoded segments that stay.
  BlobPool blobs;  // For those that are sent.
};

}  // namespace atl::collective
