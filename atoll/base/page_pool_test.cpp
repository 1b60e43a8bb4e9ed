#include "atoll/base/page_pool.h"

#include <gtest/gtest.h>

#include <thread>

namespace atl {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(PagePoolTest, GivesAgainWhatWasLetGoOfWhereItIsLargeEnoughAndNotMuchLarger) {
  PagePool pool(64 * kMiB);
  const void* const first = pool.take(8 * kMiB)->data();
  EXPECT_EQ(pool.take(6 * kMiB)->data(), first);
  EXPECT_GE(pool.take(9 * kMiB)->size(), 9 * kMiB);
  const auto small = pool.take(3 * kMiB);
  EXPECT_LT(small->size(), 8 * kMiB);
  EXPECT_EQ(pool.take(8 * kMiB)->data(), first);
}

TEST(PagePoolTest, TwoNeverHaveTheSame) {
  PagePool pool(64 * kMiB);
  static_cast<void>(pool.take(8 * kMiB));
  const auto one = pool.take(8 * kMiB);
  const auto other = pool.take(8 * kMiB);
  EXPECT_NE(one->data(), other->data());
}

TEST(PagePoolTest, KeepsNoMoreThanItMay) {
  PagePool pool(20 * kMiB);
  auto first = pool.take(8 * kMiB);
  auto second = pool.take(8 * kMiB);
  auto third = pool.take(9 * kMiB);
  const void* const kept = third->data();
  first.reset();
  second.reset();
  EXPECT_EQ(pool.spare_bytes(), 16 * kMiB);
  third.reset();
  EXPECT_EQ(pool.spare_bytes(), 17 * kMiB);
  EXPECT_EQ(pool.take(9 * kMiB)->data(), kept);
  static_cast<void>(pool.take(21 * kMiB));
  EXPECT_EQ(pool.spare_bytes(), 17 * kMiB);
}

TEST(PagePoolTest, WhatWasTakenMayOutliveItOnAnotherThread) {
  std::shared_ptr<PagePool::Pages> pages;
  {
    PagePool pool(64 * kMiB);
    pages = pool.take(8 * kMiB);
  }
  std::jthread([pages = std::move(pages)]() mutable {
    pages->span()[0] = std::byte{1};
    pages.reset();
  });
}

}  // namespace
}  // namespace atl
