// Who ends a run, and who leaves it.
#include "atoll/run/stop_rule.h"

#include <gtest/gtest.h>

namespace atl::run {
namespace {

TEST(StopRuleTest, AloneItStopsAfterTheStep) {
  bool wants = false;
  StopRule rule({.interrupted = [&] { return wants; }}, 1);
  rule.listen();
  EXPECT_FALSE(rule.ends_run(/*is_agreed=*/false));
  wants = true;
  rule.listen();
  EXPECT_TRUE(rule.ends_run(/*is_agreed=*/false));
}

TEST(StopRuleTest, AmongOthersItAsksOnceAndWaitsUntilTheyAgree) {
  int asked = 0;
  StopRule rule({.interrupted = [] { return true; }, .request_stop = [&] { asked += 1; }}, 1);
  rule.listen();
  rule.listen();
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(rule.ends_run(/*is_agreed=*/false));
  EXPECT_TRUE(rule.ends_run(/*is_agreed=*/true));
}

TEST(StopRuleTest, WhoLeavesHasCountedOnceItWasInARoundOfEachFragment) {
  bool leaves = false;
  StopRule rule({.leaves = [&] { return leaves; }}, 2);
  rule.note_round(0, /*with_this_island=*/true);
  rule.note_round(1, /*with_this_island=*/true);
  EXPECT_FALSE(rule.has_counted()) << "it was not to leave yet";
  leaves = true;
  rule.note_round(0, /*with_this_island=*/true);
  rule.note_round(0, /*with_this_island=*/true);
  rule.note_round(1, /*with_this_island=*/false);
  EXPECT_FALSE(rule.has_counted());
  rule.note_round(1, /*with_this_island=*/true);
  EXPECT_TRUE(rule.has_counted());
}

TEST(StopRuleTest, WithoutWishesNothingEnds) {
  StopRule rule({}, 1);
  rule.listen();
  EXPECT_FALSE(rule.leaves() || rule.ends_run(/*is_agreed=*/true));
}

}  // namespace
}  // namespace atl::run
