#pragma once
// Large memory of a program that takes and gives back the same sizes again and again, as a training
// step does. The C library either returns each to the system, which clears its pages every time, or
// cuts and joins what it keeps, until a third lies in holes. Here blocks stay whole, and are used
// again for what is about as large.
#include <cstddef>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/base/spare_pages.h"

namespace atl {

/// For any threads; outlives its blocks.
class BufferPool {
 public:
  /// Of a block that is used again, at most this share is room that nobody asked for.
  static constexpr double kMostWaste = 1.0 / 8;
  /// By this share the pool may be larger than ever was in use at once. Before it would be more,
  /// free blocks make way, the longest unused first: their pages are used for what is taken.
  static constexpr double kMostSpare = 1.0 / 16;
  /// Pages are moved as long as no more is mapped: a process may have 65,530 mappings.
  static constexpr size_t kMostMoved = size_t{8} << 30;

  explicit BufferPool(const Clock& clock, size_t most_moved = kMostMoved)
      : clock_(clock), most_moved_(most_moved) {}
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

  /// Memory of others, mapped and untouched, counts as in use: free blocks make way as for a block,
  /// and their pages are moved there. For how many bytes from `begin` on, the beginning of a page,
  /// that was done: they hold anything.
  size_t lend(std::byte* begin, size_t size);
  /// What was lent, or a part of it that begins and ends with a page, is zero now. Its pages are
  /// the pool's again.
  void take_back(std::byte* begin, size_t size);

  /// Unmaps what nobody has used for so long.
  void unmap_unused(Duration longer_than);

  /// Free, in use and lent.
  size_t mapped_bytes() const;

 private:
  Block* best_fit(size_t size) ATOLL_REQUIRES(mutex_);
  /// The free block that is unused for the longest, if it is since before `since`; else null. It is
  /// the caller's.
  Block* take_oldest(Time since) ATOLL_REQUIRES(mutex_);
  /// Spare pages for so much more in use, and no more mapped than may be. The caller unmaps what it
  /// returns, without the lock.
  std::vector<std::byte*> make_room(size_t size) ATOLL_REQUIRES(mutex_);
  /// How many bytes of so many can come from spare pages.
  size_t moved_for(size_t size) const ATOLL_REQUIRES(mutex_);
  /// What is mapped there is in use. How many of its bytes came from spare pages.
  size_t use(std::byte* begin, size_t size) ATOLL_REQUIRES(mutex_);
  void* mapped(size_t size);

  const Clock& clock_;
  const size_t most_moved_;
  mutable Mutex mutex_;
  std::vector<Block*> free_ ATOLL_GUARDED_BY(mutex_);  // Has room for all, so it never throws.
  SparePages spare_ ATOLL_GUARDED_BY(mutex_);          // Of blocks that made way.
  Time spare_since_ ATOLL_GUARDED_BY(mutex_){};        // None came or went.
  size_t num_blocks_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t num_mapped_ ATOLL_GUARDED_BY(mutex_) = 0;  // So far.
  size_t mapped_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t used_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  size_t most_used_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl
