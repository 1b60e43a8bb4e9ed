#include "atoll/base/spilled_array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "atoll/base/error.h"
#include "atoll/base/machine_memory.h"
#include "atoll/testing/temporary_folder.h"

namespace atl {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// Differs from page to page and within one.
std::byte value_at(size_t i) { return static_cast<std::byte>((i ^ (i >> 12U)) & 0xffU); }

void fill(const SpilledArray& array) {
  for (size_t i = 0; i < array.size(); ++i) array.bytes()[i] = value_at(i);
}

size_t num_wrong(const SpilledArray& array) {
  size_t wrong = 0;
  for (size_t i = 0; i < array.size(); ++i) wrong += array.bytes()[i] == value_at(i) ? 0 : 1;
  return wrong;
}

TEST(SpilledArrayTest, BeginsWithZerosInAFileWithoutAName) {
  const TestFolder folder;
  const SpilledArray array(folder / "new", 100'000);
  EXPECT_EQ(array.size(), 100'000U);
  EXPECT_TRUE(
      std::ranges::all_of(array.bytes(), [](std::byte each) { return each == std::byte(); }));
  EXPECT_TRUE(fs::is_empty(folder / "new"));
}

TEST(SpilledArrayTest, WhatRestsLeavesTheMemoryAndKeepsItsContent) {
  constexpr size_t kBytes = size_t{32} << 20;
  constexpr size_t kSlack = size_t{4} << 20;
  const TestFolder folder;
  const SpilledArray array(folder, kBytes);
  const size_t before = resident_memory_bytes();
  ASSERT_GT(before, 0U) << "no /proc/self/status";
  fill(array);
  EXPECT_GT(resident_memory_bytes(), before + kBytes - kSlack);
  let_rest(array.bytes().subspan(kBytes / 4, kBytes / 4));
  EXPECT_LT(resident_memory_bytes(), before + kBytes * 3 / 4 + kSlack);
  let_rest(array.bytes());
  EXPECT_LT(resident_memory_bytes(), before + kSlack);
  EXPECT_EQ(num_wrong(array), 0U);
}

TEST(SpilledArrayTest, PartsOfPagesRestWithoutHarmToWhatIsBesideThem) {
  const TestFolder folder;
  const SpilledArray array(folder, 3 * 4096 + 5);
  fill(array);
  let_rest(array.bytes().subspan(1, 1));
  let_rest(array.bytes().subspan(4095, 4098));
  let_rest(array.bytes().last(1));
  let_rest(array.bytes().subspan(7, 0));
  EXPECT_EQ(num_wrong(array), 0U);
}

TEST(SpilledArrayTest, MovesAndMayBeEmpty) {
  const TestFolder folder;
  SpilledArray array(folder, 5000);
  fill(array);
  SpilledArray other(std::move(array));
  array = SpilledArray(folder, 0);
  EXPECT_EQ(array.size(), 0U);
  let_rest(array.bytes());
  std::swap(array, other);
  EXPECT_EQ(array.size(), 5000U);
  EXPECT_EQ(num_wrong(array), 0U);
}

TEST(SpilledArrayTest, ADiskWithoutRoomIsNamedBeforeAnyTouch) {
  const TestFolder folder;
  // A limit on file size refuses the room, as a full disk does.
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small{.rlim_cur = 2000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of([&] { const SpilledArray array(folder, 3'000'000); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, AllOf(HasSubstr("3.0 MB"), HasSubstr(folder.path().string()),
                             HasSubstr("make room")));
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(SpilledArrayTest, AFolderThatCannotBeIsNamed) {
  const TestFolder folder;
  const fs::path file = folder.write("file", "x");
  EXPECT_THAT(message_of([&] { const SpilledArray array(file / "inside", 10); }),
              HasSubstr((file / "inside").string()));
}

}  // namespace
}  // namespace atl
