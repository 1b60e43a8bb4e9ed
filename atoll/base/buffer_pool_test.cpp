#include "atoll/base/buffer_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "atoll/base/machine_memory.h"

namespace atl {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::byte* new_pages(size_t size) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  return static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, kFlags, -1, 0));
}

std::vector<BufferPool::Block*> take_many(BufferPool& pool) {
  std::vector<BufferPool::Block*> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(pool.take(2 * kMiB));
  return blocks;
}

TEST(BufferPoolTest, ASizeThatComesBackHasTheSameBlock) {
  const ManualClock clock;
  BufferPool pool(clock);
  BufferPool::Block* const first = pool.take(3 * kMiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first->data()) % 64, 0);
  std::memset(first->data(), 1, 3 * kMiB);
  pool.give_back(first);
  BufferPool::Block* const smaller = pool.take(3 * kMiB - 100'000);
  EXPECT_EQ(smaller, first);
  BufferPool::Block* const second = pool.take(3 * kMiB);
  EXPECT_NE(second, first);
  pool.give_back(smaller);
  pool.give_back(second);
}

TEST(BufferPoolTest, WhatIsMuchSmallerHasABlockOfItsOwn) {
  const ManualClock clock;
  BufferPool pool(clock);
  BufferPool::Block* const large = pool.take(8 * kMiB);
  BufferPool::Block* const first = pool.take(3 * kMiB);
  BufferPool::Block* const second = pool.take(3 * kMiB);
  pool.give_back(first);
  pool.give_back(second);
  BufferPool::Block* const small = pool.take(kMiB);
  EXPECT_EQ(small->size, kMiB + 4096);
  pool.give_back(small);
  pool.give_back(large);
}

TEST(BufferPoolTest, FreeBlocksMakeWayForOthersMemory) {
  const ManualClock clock;
  BufferPool pool(clock);
  std::vector<BufferPool::Block*> blocks = take_many(pool);
  const size_t most = pool.mapped_bytes();
  std::vector<std::byte*> lent;
  for (BufferPool::Block* const block : blocks) {
    std::memset(block->data(), 7, 2 * kMiB);
    pool.give_back(block);
    lent.push_back(new_pages(2 * kMiB));
    const size_t filled = pool.lend(lent.back(), 2 * kMiB);
    EXPECT_EQ(lent.back()[2 * kMiB - 1], filled == 2 * kMiB ? std::byte{7} : std::byte{0});
    EXPECT_LE(pool.mapped_bytes(), most + most / 16);
  }
  for (std::byte* const pages : lent) {
    pages[0] = std::byte{1};
    pool.take_back(pages, 2 * kMiB);
    EXPECT_EQ(pages[0], std::byte{0});
    EXPECT_EQ(pages[2 * kMiB - 1], std::byte{0});
    ::munmap(pages, 2 * kMiB);
  }
  EXPECT_LE(pool.mapped_bytes(), most + most / 16);
  // Their pages are blocks' again.
  const double resident = resident_memory_bytes();
  for (BufferPool::Block*& block : blocks) {
    block = pool.take(2 * kMiB);
    std::memset(block->data(), 8, 2 * kMiB);
  }
  EXPECT_LE(resident_memory_bytes(), resident + 4e6);
  EXPECT_LE(pool.mapped_bytes(), most + most / 16);
  for (BufferPool::Block* const block : blocks) pool.give_back(block);
  pool.unmap_unused(Duration::min());
  EXPECT_EQ(pool.mapped_bytes(), 0);
}

TEST(BufferPoolTest, FromSomeSizeOnNoPagesAreMoved) {
  const ManualClock clock;
  BufferPool pool(clock, /*most_moved=*/1);
  BufferPool::Block* const block = pool.take(8 * kMiB);
  std::memset(block->data(), 7, 8 * kMiB);
  pool.give_back(block);
  std::byte* const pages = new_pages(8 * kMiB);
  EXPECT_EQ(pool.lend(pages, 8 * kMiB), 0);
  pages[5] = std::byte{1};
  pool.take_back(pages, 8 * kMiB);
  EXPECT_EQ(pages[5], std::byte{0});
  EXPECT_LE(pool.mapped_bytes(), kMiB);  // What of the block was over may stay.
  ::munmap(pages, 8 * kMiB);
}

TEST(BufferPoolTest, AUnitOfSeveralMappingsIsZeroWhenItIsTakenBack) {
  const ManualClock clock;
  BufferPool pool(clock);
  std::byte* const pages = new_pages(4 * kMiB);
  ASSERT_EQ(::madvise(pages + 4096, 8192, MADV_NOHUGEPAGE), 0);  // Cuts the mapping.
  pool.lend(pages, 4 * kMiB);
  std::memset(pages, 7, 4 * kMiB);
  pool.take_back(pages, 4 * kMiB);
  EXPECT_EQ(std::count(pages, pages + 4 * kMiB, std::byte{0}), 4 * kMiB);
  EXPECT_LE(pool.mapped_bytes(), 4 * kMiB);
  ::munmap(pages, 4 * kMiB);
}

TEST(BufferPoolTest, FreeBlocksMakeWayBeforeThePoolGrows) {
  const ManualClock clock;
  BufferPool pool(clock);
  std::vector<BufferPool::Block*> blocks = take_many(pool);
  const size_t most = pool.mapped_bytes();
  for (BufferPool::Block* const block : blocks) pool.give_back(block);
  EXPECT_EQ(pool.mapped_bytes(), most);
  BufferPool::Block* const large = pool.take(30 * kMiB);
  EXPECT_LE(pool.mapped_bytes(), most + most / 16);
  pool.give_back(large);
}

TEST(BufferPoolTest, WhatIsNotUsedForLongIsUnmapped) {
  ManualClock clock;
  BufferPool pool(clock);
  BufferPool::Block* const old = pool.take(8 * kMiB);
  BufferPool::Block* const used = pool.take(2 * kMiB);
  pool.give_back(old);
  clock.advance(std::chrono::seconds(61));
  pool.give_back(used);
  pool.unmap_unused(std::chrono::seconds(60));
  EXPECT_EQ(pool.mapped_bytes(), 2 * kMiB + 4096);
  clock.advance(std::chrono::seconds(61));
  pool.unmap_unused(std::chrono::seconds(60));
  EXPECT_EQ(pool.mapped_bytes(), 0);
}

TEST(BufferPoolTest, NoTwoBlocksOverlapAndThePoolIsNeverLargerThanMostWasInUse) {
  const ManualClock clock;
  BufferPool pool(clock);
  std::mt19937 random(7);
  struct Held {
    BufferPool::Block* block;
    size_t size;
    int value;
  };
  std::vector<Held> held;
  size_t used = 0;
  size_t most_used = 0;
  for (int step = 0; step < 3000; ++step) {
    if (held.empty() || random() % 2 == 0) {
      const size_t size = kMiB / 8 + random() % (8 * kMiB);
      BufferPool::Block* const block = pool.take(size);
      std::memset(block->data(), step % 251, size);
      held.push_back({block, size, step % 251});
      used += block->size;
    } else {
      const size_t index = random() % held.size();
      const Held one = held[index];
      const auto* const bytes = static_cast<const unsigned char*>(one.block->data());
      ASSERT_TRUE(bytes[0] == one.value && bytes[one.size / 2] == one.value &&
                  bytes[one.size - 1] == one.value);
      used -= one.block->size;
      pool.give_back(one.block);
      held[index] = held.back();
      held.pop_back();
    }
    most_used = std::max(most_used, used);
    ASSERT_LE(pool.mapped_bytes(), most_used + most_used / 16);
  }
  for (const Held& one : held) pool.give_back(one.block);
}

TEST(BufferPoolTest, WhatNoMachineHasIsRefusedAndMakesThePoolNoLarger) {
  const ManualClock clock;
  BufferPool pool(clock);
  EXPECT_THROW(pool.take(size_t{1} << 60), std::bad_alloc);
  EXPECT_THROW(pool.take(SIZE_MAX), std::bad_alloc);
  pool.give_back(pool.take(8 * kMiB));
  pool.give_back(pool.take(12 * kMiB));
  EXPECT_EQ(pool.mapped_bytes(), 12 * kMiB + 4096);
}

TEST(BufferPoolTest, ManyThreadsShareIt) {
  const SystemClock clock;
  BufferPool pool(clock);
  const auto use = [&pool](int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    for (int i = 0; i < 500; ++i) {
      const size_t size = kMiB / 16 + random() % (kMiB / 4);
      BufferPool::Block* const block = pool.take(size);
      std::memset(block->data(), seed, size);
      if (i % 50 == 0) pool.unmap_unused(Duration(0));
      const auto* const bytes = static_cast<const char*>(block->data());
      if (bytes[0] != seed || bytes[size - 1] != seed) std::abort();
      pool.give_back(block);
    }
  };
  std::vector<std::thread> threads;
  for (int seed = 1; seed <= 4; ++seed) threads.emplace_back(use, seed);
  for (std::thread& thread : threads) thread.join();
  pool.unmap_unused(Duration::min());
  EXPECT_EQ(pool.mapped_bytes(), 0);
}

}  // namespace
}  // namespace atl
