#include "atoll/model/page_tensor.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>

#include "atoll/base/machine_memory.h"
#include "atoll/model/pooled_tensors.h"

namespace atl::model {
namespace {

TEST(PageTensorTest, WhatIsForgottenIsZeroAndTheRestIsNot) {
  const at::Tensor values = page_zeros(10'000, at::kFloat);
  EXPECT_EQ(values.abs().sum().item<float>(), 0);
  for (const auto& [begin, end] :
       {std::pair{0, 0}, {3, 5}, {1000, 1030}, {1, 9999}, {0, 10'000}, {1024, 2048}}) {
    values.fill_(1);
    forget(values.slice(0, begin, end));
    EXPECT_EQ(values.sum().item<float>(), static_cast<float>(10'000 - (end - begin)));
    EXPECT_EQ(values.slice(0, begin, end).sum().item<float>(), 0);
  }
}

TEST(PageTensorTest, MemoryIsTakenWhereItIsTouched) {
  constexpr int64_t kSize = 16 << 20;  // 64 MiB.
  constexpr double kMiB = 1 << 20;
  const double before = resident_memory_bytes();
  const at::Tensor values = page_zeros(kSize, at::kFloat);
  EXPECT_LT(resident_memory_bytes() - before, 8 * kMiB);
  values.fill_(1);
  EXPECT_GT(resident_memory_bytes() - before, 48 * kMiB);
  forget(values.slice(0, 100, kSize));
  EXPECT_LT(resident_memory_bytes() - before, 8 * kMiB);
  EXPECT_EQ(values.sum().item<float>(), 100);
}

/// Of a tensor that is given back to the pool: 32 MiB of spare pages that are not zero.
void make_spare_pages() {
  BufferPool& pool = tensor_pool();
  BufferPool::Block* const block = pool.take(32 << 20);
  std::memset(block->data(), 1, 32 << 20);
  pool.give_back(block);
}

TEST(PageTensorTest, WhatIsWrittenNextTakesThePoolsPagesAndIsZero) {
  constexpr int64_t kMiB = (1 << 20) / sizeof(float);
  make_spare_pages();
  const size_t before = tensor_pool().mapped_bytes();
  {
    const at::Tensor values = page_zeros(30 * kMiB + 10, at::kFloat);
    const double resident = resident_memory_bytes();
    for (int turn = 0; turn < 3; ++turn) {
      make_room_for(values.slice(0, kMiB - 1, 9 * kMiB + 1).view({2, -1}).t());
      make_room_for(values.slice(0, 2 * kMiB, 10 * kMiB));  // Once each.
      make_room_for(values.slice(0, 5, 5));
      make_room_for(values.slice(0, 9 * kMiB + 1));
      EXPECT_EQ(values.max().item<float>(), 0);
      values.fill_(1);
      EXPECT_LT(resident_memory_bytes(), resident + 6e6);  // What is no whole unit, and the spare.
      EXPECT_LT(tensor_pool().mapped_bytes(), before + 4e6);
      forget(values);  // Who reads it now touches it.
      EXPECT_LT(tensor_pool().mapped_bytes(), before + 4e6);
    }
    make_room_for(values.slice(0, 0, 20 * kMiB));
    values.fill_(1);
    forget(values.slice(0, kMiB, 30 * kMiB));  // Some of what was lent together.
    make_room_for(values.slice(0, 2 * kMiB, 29 * kMiB));
    EXPECT_EQ(values.sum().item<float>(), static_cast<float>(kMiB + 10));
    make_room_for(at::zeros({1 << 20}));  // Nothing of others.
    EXPECT_FALSE(is_worth_forgetting(values));
  }
  EXPECT_LE(tensor_pool().mapped_bytes(), before + 4e6);
}

TEST(PageTensorTest, WhatIsWrittenStays) {
  constexpr int64_t kMiB = (1 << 20) / sizeof(float);
  make_spare_pages();
  const at::Tensor values = page_zeros(16 * kMiB, at::kFloat);
  values[7 * kMiB] = 3;
  make_room_for(values);
  EXPECT_EQ(values.sum().item<float>(), 3);
}

TEST(PageTensorTest, ManyThatAreClearedTakeNoMemory) {
  constexpr int64_t kSize = static_cast<int64_t>(kLeastWorth / sizeof(float));
  const at::Tensor few = at::ones({100});
  clear(few);
  EXPECT_EQ(few.sum().item<float>(), 0);
  const at::Tensor values = page_zeros(kSize, at::kFloat);
  for (int turn = 0; turn < 2; ++turn) {
    values.fill_(1);
    const double before = resident_memory_bytes();
    clear(values);
    EXPECT_LT(resident_memory_bytes(), before - 0.75 * static_cast<double>(kLeastWorth));
    EXPECT_EQ(values[kSize / 2].item<float>(), 0);
  }
}

TEST(PageTensorTest, OfNothing) {
  const at::Tensor none = page_zeros(0, at::kBFloat16);
  EXPECT_EQ(none.numel(), 0);
  forget(none);
}

}  // namespace
}  // namespace atl::model
