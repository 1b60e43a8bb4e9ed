#include "atoll/model/spinning.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <optional>

namespace atl::model {
namespace {

/// How many of the next `count` periods spin, when all have that delay.
int num_spinning(SpinPolicy& policy, int count, double delay) {
  int found = 0;
  for (int i = 0; i < count; ++i) found += policy.next(delay) ? 1 : 0;
  return found;
}

TEST(SpinPolicyTest, SpinsWhereNobodyElseWantsTheCores) {
  SpinPolicy policy;
  EXPECT_EQ(num_spinning(policy, 100, 0.05), 100);
}

TEST(SpinPolicyTest, SleepsAtOnceBesideOthersAndLooksEverLessOften) {
  SpinPolicy policy;
  EXPECT_FALSE(policy.next(0.6));
  EXPECT_EQ(num_spinning(policy, 4, 0.8), 0);
  EXPECT_TRUE(policy.next(0.8)) << "to see whether they are still there";
  EXPECT_LE(num_spinning(policy, 500, 0.8), 12);
}

TEST(SpinPolicyTest, SpinsAgainOnceTheyHaveGone) {
  SpinPolicy policy;
  num_spinning(policy, 500, 0.8);
  // What threads wait while they sleep says nothing.
  int periods = 0;
  while (!policy.next(0.8)) ++periods;
  EXPECT_LE(periods, 50);
  EXPECT_EQ(num_spinning(policy, 100, 0.05), 100);
  // Others that come then are given way to, and looked for, soon.
  EXPECT_FALSE(policy.next(0.6));
  EXPECT_EQ(num_spinning(policy, 5, 0.8), 1);
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The processor time that the first thread of a team spends on waiting for the second, which
/// sleeps for a second in all.
double seconds_of_waiting() {
  const double before = processor_seconds();
  for (int i = 0; i < 200; ++i) {
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) ::usleep(5000);
  }
  return processor_seconds() - before;
}

TEST(SleepingTeamTest, LetsThreadsThatWaitSleep) {
  std::optional<SleepingTeam> team(std::in_place);
  ::usleep(50'000);  // Until its threads are there.
  EXPECT_LT(seconds_of_waiting(), 0.2);
  team.reset();
  team.emplace();
  team.reset();
}

class SpinningTest : public testing::Test {
 protected:
  SpinningTest() {
    ::unsetenv("GOMP_SPINCOUNT");
    ::unsetenv("OMP_WAIT_POLICY");
  }
};

TEST_F(SpinningTest, DecidesAndEndsAtOnce) { EXPECT_TRUE(Spinning().decides()); }

TEST_F(SpinningTest, WhatTheUserSetStays) {
  ::setenv("GOMP_SPINCOUNT", "7", 1);
  EXPECT_FALSE(Spinning().decides());
}

TEST_F(SpinningTest, APolicyOfTheUserDecides) {
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_FALSE(Spinning().decides());
}

}  // namespace
}  // namespace atl::model
