#include "atoll/kv/level_choice.h"

#include <gtest/gtest.h>

#include <array>

namespace atl::kv {
namespace {

constexpr std::array<double, 3> kBytes{100, 20, 10};

TEST(LevelChoiceTest, TheBestOneThatIsInTime) {
  const auto level = [](size_t num_left, double num_asked, double seconds) {
    return level_in_time(kBytes, num_left, num_asked,
                         {.bytes_per_second = 10, .seconds_left = seconds});
  };
  EXPECT_EQ(level(1, 0, 10), 0U);
  EXPECT_EQ(level(1, 0, 9.9), 1U);
  EXPECT_EQ(level(2, 0, 10), 1U);
  EXPECT_EQ(level(2, 0, 20), 0U);
  EXPECT_EQ(level(2, 50, 20), 1U);  // What is under way comes before it.
  EXPECT_EQ(level(1, 0, 1), 2U);
  EXPECT_EQ(level(9, 0, -5), 2U);  // Too late: as quickly as may be.
}

/// Whatever the line does, what is left fits its time as long as the smallest level does.
TEST(LevelChoiceTest, TheDeadlineIsKeptWhereItCanBe) {
  for (const double speed : {40.0, 80.0, 300.0, 5000.0}) {
    double now = 0;
    const double deadline = 10;
    for (size_t chunk = 0; chunk < 32; ++chunk) {
      const Pace pace{.bytes_per_second = speed, .seconds_left = deadline - now};
      now += kBytes.at(level_in_time(kBytes, 32 - chunk, 0, pace)) / speed;
    }
    EXPECT_LE(now, deadline) << speed;
  }
}

TEST(LevelChoiceTest, WithoutASpeedTheBestOfTheSmallOnes) {
  EXPECT_EQ(level_in_time(kBytes, 5, 0, {.seconds_left = 1}), 1U);
  EXPECT_EQ(level_in_time(std::array{100.0}, 5, 0, {.seconds_left = 1}), 0U);
}

TEST(LevelChoiceTest, WhatIsSoonerReadIsNotWaitedFor) {
  EXPECT_TRUE(is_worth_it(100, {.bytes_per_second = 10, .seconds_to_read = 10}));
  EXPECT_FALSE(is_worth_it(100, {.bytes_per_second = 10, .seconds_to_read = 9}));
  EXPECT_TRUE(is_worth_it(100, {.bytes_per_second = 0, .seconds_to_read = 1}));
}

}  // namespace
}  // namespace atl::kv
