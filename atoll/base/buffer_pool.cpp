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

size_t share_of(size_t size, double share) {
  return static_cast<size_t>(static_cast<double>(size) * share);
}

}  // namespace

void* BufferPool::Block::data() { return reinterpret_cast<std::byte*>(this) + kBeforeData; }

BufferPool::~BufferPool() { unmap_unused(Duration::min()); }

Block* BufferPool::take(size_t num_bytes) {
  if (num_bytes > PTRDIFF_MAX - 2 * kPage) throw std::bad_alloc();
  const size_t size = (num_bytes + kPage - 1) / kPage * kPage + kPage;
  {
    const MutexLock lock(mutex_);
    if (Block* const found = best_fit(size)) return found;
  }
  auto* const begin = static_cast<std::byte*>(mapped(size));
  if (begin == nullptr) throw std::bad_alloc();
  std::vector<std::byte*> units;
  size_t place = 0;
  {
    const MutexLock lock(mutex_);
    free_.reserve(num_blocks_ + 1);
    units = make_room(size);
    use(begin, size);
    num_blocks_ += 1;
    place = num_mapped_++ * kStep % kPlaces;
  }
  SparePages::unmap(units);
  return new (begin + place * kBeforeData) Block{begin, size};
}

void BufferPool::give_back(Block* block) {
  const MutexLock lock(mutex_);
  used_bytes_ -= block->size;
  block->free_since = clock_.now();
  free_.push_back(block);
}

size_t BufferPool::lend(std::byte* begin, size_t size) {
  std::vector<std::byte*> units;
  size_t filled = 0;
  {
    const MutexLock lock(mutex_);
    units = make_room(size);
    filled = use(begin, size);
  }
  SparePages::unmap(units);
  return filled;
}

void BufferPool::take_back(std::byte* begin, size_t size) {
  const MutexLock lock(mutex_);
  const size_t before = spare_.size();
  if (mapped_bytes_ > most_moved_) {
    ::madvise(begin, size, MADV_DONTNEED);
  } else {
    spare_.take_pages(begin, size);
    spare_since_ = clock_.now();
  }
  used_bytes_ -= size;
  mapped_bytes_ -= size - (spare_.size() - before);
}

void BufferPool::unmap_unused(Duration longer_than) {
  std::vector<Block*> old;
  std::vector<std::byte*> units;
  {
    const MutexLock lock(mutex_);
    const bool is_all = longer_than == Duration::min();
    const Time since = is_all ? Time::max() : clock_.now() - longer_than;
    while (Block* const block = take_oldest(since)) {
      old.push_back(block);
      mapped_bytes_ -= block->size;
    }
    if (spare_since_ < since) {
      mapped_bytes_ -= spare_.size();
      units = spare_.give_all();
    }
  }
  for (const Block* const block : old) ::munmap(block->begin, block->size);
  SparePages::unmap(units);
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

Block* BufferPool::take_oldest(Time since) {
  if (free_.empty()) return nullptr;
  const auto oldest = std::ranges::min_element(free_, {}, &Block::free_since);
  if ((*oldest)->free_since >= since) return nullptr;
  Block* const block = *oldest;
  num_blocks_ -= 1;
  *oldest = free_.back();
  free_.pop_back();
  return block;
}

std::vector<std::byte*> BufferPool::make_room(size_t size) {
  std::vector<std::byte*> units;
  const size_t most_used = std::max(most_used_bytes_, used_bytes_ + size);
  const size_t most = most_used + share_of(most_used, kMostSpare);
  const size_t wanted = moved_for(size);
  while (mapped_bytes_ + size - std::min(wanted, spare_.size()) > most) {
    if (spare_.size() > wanted) {
      units.push_back(spare_.give_unit());
      mapped_bytes_ -= SparePages::kUnit;
    } else if (const Block* const block = take_oldest(Time::max())) {
      mapped_bytes_ -= block->size - SparePages::whole_units(block->size);
      spare_.take_mapped(static_cast<std::byte*>(block->begin), block->size);
    } else {
      break;
    }
  }
  return units;
}

size_t BufferPool::moved_for(size_t size) const {
  return mapped_bytes_ <= most_moved_ ? SparePages::whole_units(size) : 0;
}

size_t BufferPool::use(std::byte* begin, size_t size) {
  const size_t before = spare_.size();
  const size_t filled = spare_.fill(begin, moved_for(size));
  if (filled > 0) spare_since_ = clock_.now();
  used_bytes_ += size;
  mapped_bytes_ += size - (before - spare_.size());
  most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  return filled;
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
