#include "atoll/model/buffer_pool.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>

namespace atl::model {
namespace {

using Block = BufferPool::Block;
constexpr size_t kBefore = BufferPool::kBeforeData;
constexpr size_t kPage = 4096;

/// From which on a tensor has a block of its own.
constexpr size_t kLarge = size_t{1} << 20;

BufferPool& shared_pool() {
  static const SystemClock clock;
  static auto* const pool = new BufferPool(clock);  // Tensors outlive what main() ends.
  return *pool;
}

/// In LibTorch's own memory, where there is no `begin`.
Block* small_block(size_t num_bytes) {
  return new (c10::alloc_cpu(num_bytes + kBefore)) Block{.begin = nullptr, .size = num_bytes};
}

Block* block_of(size_t num_bytes) {
  if (num_bytes < kLarge) return small_block(num_bytes);
  try {
    return shared_pool().take(num_bytes);
  } catch (const std::bad_alloc&) {
    return small_block(num_bytes);  // Which says in LibTorch's words that there is no room.
  }
}

/// oneDNN takes and gives back by pointer alone, so that each tells where it comes from.
class PooledAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    void* const data = num_bytes == 0 ? nullptr : block_of(num_bytes)->data();
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }

 private:
  static void give_back(void* data) {
    if (data == nullptr) return;
    auto* const block = reinterpret_cast<Block*>(static_cast<std::byte*>(data) - kBefore);
    if (block->begin == nullptr) {
      c10::free_cpu(block);
    } else {
      shared_pool().give_back(block);
    }
  }
};

}  // namespace

void* BufferPool::Block::data() { return reinterpret_cast<std::byte*>(this) + kBeforeData; }

BufferPool::~BufferPool() {
  const MutexLock lock(mutex_);
  unmap_free(0, {});
}

Block* BufferPool::take(size_t num_bytes) {
  // With a page in which blocks begin at different places: at the same one, those that an operation
  // reads and writes side by side would share the same few lines of the cache.
  const size_t size = (num_bytes + kPage - 1) / kPage * kPage + kPage;
  const MutexLock lock(mutex_);
  used_bytes_ += size;
  most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  Block* block = taken_from_free(size);
  if (block == nullptr) {
    try {
      block = mapped(size);
    } catch (const std::bad_alloc&) {
      used_bytes_ -= size;
      throw;
    }
  }
  used_bytes_ += block->size - size;
  most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
  return block;
}

void BufferPool::give_back(Block* block) {
  const MutexLock lock(mutex_);
  const Time now = clock_.now();
  used_bytes_ -= block->size;
  free_.insert({now, block});
  unmap_free(mapped_bytes_, now - kLongestRest);
}

size_t BufferPool::mapped_bytes() const {
  const MutexLock lock(mutex_);
  return mapped_bytes_;
}

Block* BufferPool::taken_from_free(size_t size) {
  Block wanted{.begin = nullptr, .size = size};
  const auto found = free_.lower_bound(Rest{Time::max(), &wanted});
  if (found == free_.end() || found->block->size > size + size / kMostWaste) return nullptr;
  Block* const block = found->block;
  free_.erase(found);
  return block;
}

Block* BufferPool::mapped(size_t size) {
  const size_t most = std::max(most_used_bytes_ + most_used_bytes_ / kSlack, size);
  unmap_free(most - size, Time::min());
  void* const begin =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  mapped_bytes_ += size;
  const size_t line = num_mapped_++ * 7 % (kPage / kBeforeData - 1);
  return new (static_cast<std::byte*>(begin) + line * kBeforeData) Block{begin, size};
}

void BufferPool::unmap_free(size_t most_bytes, Time since) {
  while (!free_.empty()) {
    const auto oldest = std::ranges::min_element(free_, {}, &Rest::since);
    if (mapped_bytes_ <= most_bytes && oldest->since >= since) return;
    const Block block = *oldest->block;
    free_.erase(oldest);
    mapped_bytes_ -= block.size;
    ::munmap(block.begin, block.size);
  }
}

void pool_large_tensors() {
  static PooledAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

}  // namespace atl::model
