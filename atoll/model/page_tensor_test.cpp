#include "atoll/model/page_tensor.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "atoll/base/machine_memory.h"

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

TEST(PageTensorTest, OfNothing) {
  const at::Tensor none = page_zeros(0, at::kBFloat16);
  EXPECT_EQ(none.numel(), 0);
  forget(none);
}

}  // namespace
}  // namespace atl::model
