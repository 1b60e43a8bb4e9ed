#include "atoll/base/buffer_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <numeric>

namespace atl {
namespace {

using Block = BufferPool::Block;

constexpr size_t kPage = 4096;

// A block has a page more than was asked for, in which blocks begin at different places: at the
// same one, those that are read and written side by side would share a few lines of the cache.
constexpr size_t kPlaces = kPage / BufferPool::kBeforeData - 1;
constexpr size_t kStep = 11;
static_assert(std::gcd(kStep, kPlaces) == 1);

void unmap(const std::vector<Block*>& blocks) {
  for (const Block* const block : blocks) ::munmap(block->begin, block->size);
}

size_t share_of(size_t size, double share) {
  return static_cast<size_t>(static_cast<double>(size) * share);
}

}  // namespace

void* BufferPool::Block::data() { return reinterpret_cast<std::byte*>(this) + kBeforeData; }

BufferPool::~BufferPool() { unmap_unused(Duration::min()); }

Block* BufferPool::take(size_t num_bytes) {
  if (num_bytes > PTRDIFF_MAX - 2 * kPage) throw std::bad_alloc();
  const size_t size = (num_bytes + kPage - 1) / kPage * kPage + kPage;
  std::vector<Block*> old;
  size_t place = 0;
  {
    const MutexLock lock(mutex_);
    if (Block* const found = best_fit(size)) return found;
    free_.reserve(num_blocks_ + 1);
    const size_t most = std::max(most_used_bytes_, used_bytes_ + size);
    old = old_ones(most + share_of(most, kMostSpare) - size, Time::min());
    num_blocks_ += 1;
    mapped_bytes_ += size;
    used_bytes_ += size;
    place = num_mapped_++ * kStep % kPlaces;
  }
  unmap(old);
  void* const begin = mapped(size);
  const MutexLock lock(mutex_);
  if (begin == nullptr) {
    num_blocks_ -= 1;
    mapped_bytes_ -= size;
    used_bytes_ -= size;
    throw std::bad_alloc();
  }
  most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  return new (static_cast<std::byte*>(begin) + place * kBeforeData) Block{begin, size};
}

void BufferPool::give_back(Block* block) {
  const MutexLock lock(mutex_);
  used_bytes_ -= block->size;
  block->free_since = clock_.now();
  free_.push_back(block);
}

void BufferPool::unmap_unused(Duration longer_than) {
  std::vector<Block*> old;
  {
    const MutexLock lock(mutex_);
    const bool is_all = longer_than == Duration::min();
    old = old_ones(mapped_bytes_, is_all ? Time::max() : clock_.now() - longer_than);
  }
  unmap(old);
}

size_t BufferPool::mapped_bytes() const {
  const MutexLock lock(mutex_);
  return mapped_bytes_;
}

Block* BufferPool::best_fit(size_t size) {
  const size_t largest = size + share_of(size, kMostWaste);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if ((*it)->size < size || (*it)->size > largest) continue;
    // Of equal ones that which was used last: its bytes may be in caches.
    if (best == free_.end() || (*it)->size < (*best)->size ||
        ((*it)->size == (*best)->size && (*it)->free_since >= (*best)->free_since)) {
      best = it;
    }
  }
  if (best == free_.end()) return nullptr;
  Block* const found = *best;
  *best = free_.back();
  free_.pop_back();
  used_bytes_ += found->size;
  most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  return found;
}

std::vector<Block*> BufferPool::old_ones(size_t most_bytes, Time since) {
  std::vector<Block*> old;
  while (!free_.empty()) {
    const auto oldest = std::ranges::min_element(free_, {}, &Block::free_since);
    if (mapped_bytes_ <= most_bytes && (*oldest)->free_since >= since) break;
    old.push_back(*oldest);
    mapped_bytes_ -= (*oldest)->size;
    num_blocks_ -= 1;
    *oldest = free_.back();
    free_.pop_back();
  }
  return old;
}

/// Null where there is no room, even without what lies free.
void* BufferPool::mapped(size_t size) {
  const auto map = [size]() -> void* {
    void* const begin =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return begin == MAP_FAILED ? nullptr : begin;
  };
  if (void* const begin = map()) return begin;
  unmap_unused(Duration::min());
  return map();
}

}  // namespace atl
