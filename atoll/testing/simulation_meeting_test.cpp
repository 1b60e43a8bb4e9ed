// Islands that cannot reach each other, in whole runs over the simulated network: they meet at
// others, which pass on what they send each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing/simulated_world.h"

namespace atl::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

/// Rounds of many parts, that take long enough for something to happen in the middle of them.
Plan plan_of(int num_islands, Topology topology) {
  Plan plan;
  plan.num_islands = num_islands;
  plan.count = size_t{1} << 16;
  plan.topology = topology;
  plan.num_rounds = 100'000;
  plan.silence_timeout = seconds(5);
  return plan;
}

/// A run in which each round takes half a second or so.
struct PartedRun : World {
  explicit PartedRun(Plan plan_in) : World(1, std::move(plan_in), {.bits_per_second = 20e6}) {}
  ~PartedRun() { EXPECT_EQ(invariants.broken().value_or(""), "") << log; }
  void begin() {
    start_coordinator();
    add_all();
  }
  void expect_commits(size_t more) {
    const size_t before = invariants.num_commits();
    EXPECT_TRUE(run_until([&] { return invariants.num_commits() >= before + more; }, seconds(120)))
        << describe();
  }
  /// Of each commit from the one of this number on.
  void expect_members(size_t num_members, size_t since = 0) {
    size_t index = 0;
    for (const auto& [key, committed] : invariants.commits()) {
      if (index++ < since) continue;
      EXPECT_EQ(committed.members.size(), num_members) << log;
    }
  }
};

class MeetingTest : public testing::TestWithParam<Topology> {};
INSTANTIATE_TEST_SUITE_P(Topologies, MeetingTest,
                         testing::Values(Topology::kScatter, Topology::kGather),
                         [](const auto& param) {
                           return param.param == Topology::kScatter ? "Scatter" : "Gather";
                         });

TEST_P(MeetingTest, TwoOfThreeThatNeverReachEachOtherAreInEveryCommit) {
  Plan plan = plan_of(3, GetParam());
  plan.num_rounds = 20;
  PartedRun run(plan);
  run.network.cut("island-0", "island-1");
  run.begin();
  ASSERT_TRUE(run.run(seconds(120))) << run.describe();
  EXPECT_EQ(run.invariants.num_commits(), 20U);
  run.expect_members(3);
  for (const auto& machine : run.machines) EXPECT_EQ(machine->life->contributed.size(), 20U);
  EXPECT_THAT(run.log, HasSubstr("islands 'island-0' and 'island-1' reach each other again "
                                 "through 'island-2'"));
}

TEST_P(MeetingTest, TwoPairsOfFour) {
  Plan plan = plan_of(4, GetParam());
  plan.num_rounds = 20;
  PartedRun run(plan);
  run.network.cut("island-0", "island-1");
  run.network.cut("island-2", "island-3");
  run.begin();
  ASSERT_TRUE(run.run(seconds(120))) << run.describe();
  EXPECT_EQ(run.invariants.num_commits(), 20U);
  run.expect_members(4);
}

/// Nothing comes over a connection that stands: where it breaks again they meet elsewhere.
TEST_P(MeetingTest, OneWayIsEnoughToNeedIt) {
  PartedRun run(plan_of(3, GetParam()));
  run.begin();
  run.expect_commits(2);
  run.network.cut_one_way("island-0", "island-1");
  const auto meet = [&] { return run.log.find("through 'island-2'") != std::string::npos; };
  EXPECT_TRUE(run.run_until(meet, seconds(120))) << run.describe();
  const size_t before = run.invariants.num_commits();
  run.expect_commits(10);
  run.expect_members(3, before + 2);
}

/// Whenever it dies: they meet at another.
TEST_P(MeetingTest, WherePeopleMeetIsKilledInTheMiddleOfARound) {
  for (int delay = 0; delay < 600; delay += 40) {
    SCOPED_TRACE(delay);
    PartedRun run(plan_of(4, GetParam()));
    run.network.cut("island-0", "island-1");
    run.begin();
    run.expect_commits(3);
    run.run_for(milliseconds(delay));
    run.kill(*run.machines[2]);
    const size_t before = run.invariants.num_commits();
    run.expect_commits(3);
    run.expect_members(3, before + 1);
    EXPECT_THAT(run.log, HasSubstr("through 'island-3'"));
    if (HasFailure()) return;
  }
}

/// Whenever a connection breaks over which others reach each other: it is made anew.
TEST_P(MeetingTest, ItsConnectionsBreakInTheMiddleOfARound) {
  for (int delay = 0; delay < 600; delay += 40) {
    SCOPED_TRACE(delay);
    PartedRun run(plan_of(3, GetParam()));
    run.network.cut("island-0", "island-1");
    run.begin();
    run.expect_commits(3);
    run.run_for(milliseconds(delay));
    run.network.break_connections("island-2", delay % 80 == 0 ? "island-0" : "island-1");
    const size_t before = run.invariants.num_commits();
    run.expect_commits(5);
    run.expect_members(3, before + 2);
    EXPECT_THAT(run.log, testing::Not(HasSubstr("broke the protocol")));
    if (HasFailure()) return;
  }
}

/// Who is behind a router that lets nobody in, or both are: the connection is a direct one.
TEST_P(MeetingTest, WhenTheyReachEachOtherAgainNothingIsPassedOn) {
  PartedRun run(plan_of(3, GetParam()));
  run.network.cut("island-0", "island-1");
  run.begin();
  run.expect_commits(3);
  run.network.heal("island-0", "island-1");
  run.kill(*run.machines[2]);
  run.expect_commits(4);
  EXPECT_EQ(run.invariants.commits().rbegin()->second.members.size(), 2U);
}

/// Who can reach only one of them gets the state from it, and takes part.
TEST_P(MeetingTest, ANewcomerThatReachesOneOfThem) {
  PartedRun run(plan_of(3, GetParam()));
  run.begin();
  run.expect_commits(3);
  run.network.cut("late", "island-0");
  run.network.cut("late", "island-2");
  Machine& late = run.add("late");
  ASSERT_TRUE(run.run_until([&] { return late.life->contributed.size() > 2; }, seconds(60)))
      << run.describe();
}

}  // namespace
}  // namespace atl::collective
