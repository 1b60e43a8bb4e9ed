#include "atoll/model/pooled_tensors.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <chrono>
#include <cstddef>
#include <new>

namespace atl::model {
namespace {

using Block = BufferPool::Block;
constexpr size_t kBefore = BufferPool::kBeforeData;

/// From which on a tensor has a block of its own.
constexpr size_t kLarge = size_t{1} << 20;

constexpr Duration kLongestRest = std::chrono::minutes(1);

/// In LibTorch's own memory, where there is no `begin`.
Block* small_block(size_t num_bytes) {
  return new (c10::alloc_cpu(num_bytes + kBefore)) Block{.begin = nullptr, .size = num_bytes};
}

Block* block_of(size_t num_bytes) {
  if (num_bytes < kLarge) return small_block(num_bytes);
  try {
    return tensor_pool().take(num_bytes);
  } catch (const std::bad_alloc&) {
    return small_block(num_bytes);  // Which says in LibTorch's words that there is no room.
  }
}

/// oneDNN takes and gives back by pointer alone, so each block says where it comes from.
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
      tensor_pool().give_back(block);
    }
  }
};

}  // namespace

BufferPool& tensor_pool() {
  static const auto* const clock = new SystemClock();
  static auto* const pool = new BufferPool(*clock);
  return *pool;
}

PooledTensors::PooledTensors() {
  static auto* const allocator = new PooledAllocator();  // Never destroyed, like the pool.
  c10::SetCPUAllocator(allocator);
  thread_ = std::thread([this] {
    while (!is_over_.try_acquire_for(kLongestRest / 4)) tensor_pool().unmap_unused(kLongestRest);
  });
}

PooledTensors::~PooledTensors() {
  is_over_.release();
  thread_.join();
}

}  // namespace atl::model
