#include "atoll/model/pooled_tensors.h"

#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace atl::model {
namespace {

TEST(PooledTensorsTest, LargeTensorsAreUsedAgain) {
  const PooledTensors pooled;
  const void* first = nullptr;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor values = at::full({1 << 20}, i, at::kFloat);
    EXPECT_EQ(values[(1 << 20) - 1].item<float>(), static_cast<float>(i));
    if (first == nullptr) first = values.const_data_ptr();
    EXPECT_EQ(values.const_data_ptr(), first);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0);
  }
}

/// As oneDNN does.
TEST(PooledTensorsTest, WhatWasTakenByPointerAloneComesBack) {
  const PooledTensors pooled;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  const void* first = nullptr;
  for (const size_t size : {size_t{0}, size_t{100}, size_t{2} << 20, size_t{2} << 20}) {
    void* const bytes = allocator->raw_allocate(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 64, 0);
    if (size > 0) std::memset(bytes, 1, size);
    allocator->raw_deallocate(bytes);
    EXPECT_TRUE(first == nullptr || first == bytes);
    if (size > 1 << 20) first = bytes;
  }
}

TEST(PooledTensorsTest, WhatNoMachineHasIsRefusedInLibTorchsWords) {
  const PooledTensors pooled;
  try {
    at::full({int64_t{1} << 58}, 0, at::kFloat);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("allocate memory"), std::string::npos);
  }
}

}  // namespace
}  // namespace atl::model
