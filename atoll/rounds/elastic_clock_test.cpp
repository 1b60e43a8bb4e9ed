#include "atoll/rounds/elastic_clock.h"

#include <gtest/gtest.h>

namespace atl::rounds {
namespace {

void train(ElasticClock& clock, int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) clock.trained();
}

TEST(ElasticClockTest, CountsOwnStepsUntilTheFirstCommit) {
  ElasticClock clock(100);
  train(clock, 5);
  EXPECT_EQ(clock.now(), 5);
  clock.start(40);
  train(clock, 2);
  EXPECT_EQ(clock.now(), 42);
}

TEST(ElasticClockTest, OwnStepsAreWorthWhatTheyWereLast) {
  ElasticClock slow(1000);
  train(slow, 4);
  slow.committed(10, 0);  // The others did most of it.
  EXPECT_EQ(slow.now(), 10);
  train(slow, 2);
  EXPECT_EQ(slow.now(), 15);
  slow.committed(20, 1);  // One of the two is not in it yet.
  EXPECT_EQ(slow.now(), 25);
}

TEST(ElasticClockTest, NeverGoesBackAndEndsWithACommitAlone) {
  ElasticClock fast(30);
  train(fast, 16);
  fast.committed(10, 0);
  EXPECT_EQ(fast.now(), 16) << "what was said cannot be unsaid";
  train(fast, 100);
  EXPECT_EQ(fast.now(), 20) << "about when the next commit is due";
  EXPECT_EQ(fast.committed_step(), 10);
  fast.committed(25, 0);
  train(fast, 100);
  EXPECT_EQ(fast.now(), 29);
  fast.committed(30, 50);
  EXPECT_EQ(fast.now(), 30);
}

TEST(ElasticClockTest, APauseIsNoPace) {
  ElasticClock clock(1000);
  train(clock, 20);
  clock.committed(20, 0);
  train(clock, 1);
  for (int64_t step = 40; step <= 120; step += 20) clock.committed(step, 1);  // Without it.
  train(clock, 20);
  EXPECT_EQ(clock.now(), 140);
  clock.start(500);  // A newcomer, whose first commit comes soon.
  train(clock, 1);
  clock.committed(520, 0);
  train(clock, 20);
  EXPECT_EQ(clock.now(), 540);
}

TEST(ElasticClockTest, MultiplesAreCrossedByCommits) {
  ElasticClock clock(100);
  clock.committed(9, 0);
  EXPECT_FALSE(clock.crossed(10));
  clock.committed(25, 0);
  EXPECT_TRUE(clock.crossed(10));
  EXPECT_FALSE(clock.crossed(0));
  clock.committed(29, 0);
  EXPECT_FALSE(clock.crossed(10));
}

}  // namespace
}  // namespace atl::rounds
