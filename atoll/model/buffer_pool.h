#pragma once
// Memory of large tensors on the CPU. A training step takes and gives back the same sizes again and
// again. The C library either returns each to the system, which clears its pages at every step (a
// quarter of a small model's step), or cuts and joins what it keeps, until a third lies in holes.
// Here blocks stay whole, and are used again for what is about as large.
#include <chrono>
#include <cstddef>
#include <set>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"

namespace atl::model {

/// Blocks that lie free are given back to the system, the longest unused first, when a new one
/// would otherwise make this pool larger than ever was in use at once (and a sixteenth), or after
/// kLongestRest. For any threads; outlives its blocks.
class BufferPool {
 public:
  /// Of a block that is used again, at most this share of it is room that nobody asked for.
  static constexpr size_t kMostWaste = 8;
  static constexpr size_t kSlack = 16;
  static constexpr Duration kLongestRest = std::chrono::minutes(1);

  explicit BufferPool(const Clock& clock) : clock_(clock) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// It lies kBeforeData bytes before its data, which are at a multiple of that, as SIMD wants it.
  struct Block {
    void* begin;
    size_t size;  // Of all of it.
    void* data();
  };
  static constexpr size_t kBeforeData = 64;
  /// Throws std::bad_alloc.
  Block* take(size_t num_bytes);
  void give_back(Block* block);

  /// Free and in use.
  size_t mapped_bytes() const;

 private:
  struct Rest {
    Time since;
    Block* block;
  };
  /// The smallest first; of equal ones the one that was used last, whose bytes are in caches.
  struct BestFit {
    bool operator()(const Rest& a, const Rest& b) const {
      return std::pair(a.block->size, b.since) < std::pair(b.block->size, a.since);
    }
  };
  Block* taken_from_free(size_t size) ATOLL_REQUIRES(mutex_);
  Block* mapped(size_t size) ATOLL_REQUIRES(mutex_);
  /// Until so many bytes are mapped, and of what rests since before `since` all.
  void unmap_free(size_t most_bytes, Time since) ATOLL_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::multiset<Rest, BestFit> free_ ATOLL_GUARDED_BY(mutex_);
  size_t mapped_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t used_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t most_used_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t num_mapped_ ATOLL_GUARDED_BY(mutex_) = 0;  // So far.
};

/// From now on LibTorch's large tensors on the CPU come from a pool of the process.
void pool_large_tensors();

}  // namespace atl::model
