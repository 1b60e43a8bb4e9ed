#pragma once
// Memory for the encoded segments of one round, side by side in pages that cost little to touch.
// Not thread-safe; what was taken may outlive the arena and be let go of on any thread.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "atoll/base/page_pool.h"

namespace atl::collective {

/// Bytes that never change, within memory that stays as long as anybody has some of it.
struct SharedBytes {
  std::shared_ptr<const void> memory;
  std::span<const std::byte> bytes;
};

class BlobArena {
 public:
  /// Not initialised: to be written before it is shared.
  struct Slot {
    std::shared_ptr<const void> memory;
    std::span<std::byte> bytes;

    SharedBytes shared() const { return {memory, bytes}; }
  };

  BlobArena() = default;
  /// Room for so many blobs of at most so many bytes. Memory is taken with the first of them, from
  /// the pool, which must be there then.
  BlobArena(size_t num_blobs, size_t most, PagePool& pool)
      : pool_(&pool), capacity_(num_blobs * rounded(most)) {}

  /// Where the arena is full, as many were taken and given up, in memory of its own.
  Slot take(size_t size) {
    const size_t room = capacity_ - used_;
    const bool fits = rounded(size) <= room;
    if (fits && memory_ == nullptr) memory_ = pool_->take(capacity_);
    const auto memory = fits ? memory_ : std::make_shared<PagePool::Pages>(size);
    const size_t begin = fits ? used_ : 0;
    if (fits) used_ += rounded(size);
    return {memory, memory->span().subspan(begin, size)};
  }
  /// A copy.
  SharedBytes keep(std::span<const std::byte> bytes) {
    const Slot slot = take(bytes.size());
    std::ranges::copy(bytes, slot.bytes.begin());
    return slot.shared();
  }

 private:
  static constexpr size_t kLineBytes = 64;  // Of a cache.
  static size_t rounded(size_t size) { return (size + kLineBytes - 1) / kLineBytes * kLineBytes; }

  PagePool* pool_ = nullptr;
  std::shared_ptr<PagePool::Pages> memory_;
  size_t capacity_ = 0;
  size_t used_ = 0;
};

}  // namespace atl::collective
