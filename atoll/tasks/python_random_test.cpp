// Expectations: CPython 3.11's random module.
#include "atoll/tasks/python_random.h"

#include <gmock/gmock.h>

namespace atl::tasks {
namespace {

using ::testing::ElementsAre;

TEST(PythonRandomTest, UniformNumbersArePythons) {
  PythonRandom random(1234);
  EXPECT_EQ(random.uniform(), 0.9664535356921388);
  EXPECT_EQ(random.uniform(), 0.4407325991753527);
  EXPECT_EQ(random.uniform(), 0.007491470058587191);
}

TEST(PythonRandomTest, SamplesArePythonsFromListsAndFromSets) {
  PythonRandom random(1234);
  EXPECT_THAT(random.sample(10, 3), ElementsAre(7, 1, 0));
  EXPECT_THAT(random.sample(10, 10), ElementsAre(1, 0, 9, 8, 2, 7, 6, 3, 5, 4));
  EXPECT_THAT(random.sample(1000, 4), ElementsAre(663, 638, 495, 630));
  EXPECT_THAT(random.sample(80, 8), ElementsAre(59, 19, 11, 23, 14, 1, 64, 62));  // Still a list.
  EXPECT_THAT(random.sample(100, 8), ElementsAre(31, 8, 85, 69, 59, 76, 86, 11));
  EXPECT_THAT(random.sample(22, 1), ElementsAre(16));
}

TEST(PythonRandomTest, SeedZeroAndTheLimitsOfBelow) {
  PythonRandom random(0);
  for (const uint64_t expected : {6, 3, 6, 3, 0, 2, 4, 3}) EXPECT_EQ(random.below(7), expected);
  EXPECT_EQ(random.below(uint64_t{1} << 32), 2046968324U);
  EXPECT_EQ(random.below((uint64_t{1} << 32) - 1), 2505606783U);
  EXPECT_EQ(random.below(1), 0U);
}

}  // namespace
}  // namespace atl::tasks
