#pragma once
// Large memory of a program that takes and gives back the same sizes again and again, as a training
// step does. The C library either returns each to the system, which clears its pages every time, or
// cuts and joins what it keeps, until a third lies in holes. Here blocks stay whole, and are used
// again for what is about as large.
#include <cstddef>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"

namespace atl {

/// For any threads; outlives its blocks.
class BufferPool {
 public:
  /// Of a block that is used again, at most this share is room that nobody asked for.
  static constexpr double kMostWaste = 1.0 / 8;
  /// By this share the pool may be larger than ever was in use at once. Before it would be more,
  /// free blocks are unmapped, the longest unused first.
  static constexpr double kMostSpare = 1.0 / 16;

  explicit BufferPool(const Clock& clock) : clock_(clock) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  /// It lies kBeforeData bytes before its data, which are at a multiple of that, as SIMD wants it.
  struct Block {
    void* begin;
    size_t size;  // Of all of it.
    Time free_since{};
    void* data();
  };
  static constexpr size_t kBeforeData = 64;

  /// Throws std::bad_alloc.
  Block* take(size_t num_bytes);
  void give_back(Block* block);
  /// Unmaps what nobody has used for so long.
  void unmap_unused(Duration longer_than);

  /// Free and in use.
  size_t mapped_bytes() const;

 private:
  Block* best_fit(size_t size) ATOLL_REQUIRES(mutex_);
  /// The longest unused, until no more than `most_bytes` are mapped and all is used since `since`.
  /// The caller unmaps them without the lock, under which everybody waits.
  std::vector<Block*> old_ones(size_t most_bytes, Time since) ATOLL_REQUIRES(mutex_);
  void* mapped(size_t size);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::vector<Block*> free_ ATOLL_GUARDED_BY(mutex_);  // Has room for all, so it never throws.
  size_t num_blocks_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t num_mapped_ ATOLL_GUARDED_BY(mutex_) = 0;  // So far.
  size_t mapped_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t used_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t most_used_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl
