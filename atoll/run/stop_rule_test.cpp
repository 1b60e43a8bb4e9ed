// Who ends a run, and who leaves it.
#include "atoll/run/stop_rule.h"

#include <gtest/gtest.h>

namespace atl::run {
namespace {

TEST(StopRuleTest, AloneItStopsAfterTheStep) {
  bool wants = false;
  StopRule rule({.interrupted = [&] { return wants; }});
  rule.listen();
  EXPECT_FALSE(rule.ends_run(/*is_agreed=*/false));
  wants = true;
  rule.listen();
  EXPECT_TRUE(rule.ends_run(/*is_agreed=*/false));
}

TEST(StopRuleTest, AmongOthersItAsksOnceAndWaitsUntilTheyAgree) {
  int asked = 0;
  StopRule rule({.interrupted = [] { return true; }, .request_stop = [&] { asked += 1; }});
  rule.listen();
  rule.listen();
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(rule.ends_run(/*is_agreed=*/false));
  EXPECT_TRUE(rule.ends_run(/*is_agreed=*/true));
}

TEST(StopRuleTest, WithoutWishesNothingEnds) {
  StopRule rule({});
  rule.listen();
  EXPECT_FALSE(rule.leaves() || rule.ends_run(/*is_agreed=*/true));
}

}  // namespace
}  // namespace atl::run
