#include "atoll/coordinator/tally.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::IsEmpty;

class TallyTest : public testing::Test {
 protected:
  /// A commit of the next round, ten seconds and five steps after the last one.
  void commit(std::map<int32_t, int64_t> weights, const std::set<int32_t>& here,
              int32_t fragment = 0) {
    now += seconds(10);
    round += 1;
    tally.add({.round = round, .fragment = fragment, .step = 5 * round, .weights = weights}, here,
              now);
  }
  RunStatus status(int64_t num_islands) const {
    RunStatus run{.state = RunState::kTraining, .steps = 100};
    for (int64_t i = 0; i < num_islands; ++i) {
      run.islands.push_back(
          {.name = fmt::format("i{}", i), .number = i, .state = IslandState::kTraining});
    }
    tally.fill(run, now);
    return run;
  }

  Tally tally;
  Time now{};
  int64_t round = 0;
};

TEST_F(TallyTest, BeforeACommitNothingIsKnown) {
  const RunStatus run = status(2);
  EXPECT_FALSE(run.averaged_share);
  EXPECT_FALSE(run.rounds_per_minute);
  EXPECT_FALSE(run.seconds_left);
  EXPECT_FALSE(run.islands[0].last_round);
  EXPECT_THAT(run.alarm, IsEmpty());
}

TEST_F(TallyTest, TokensAddUpPerIslandAndInAll) {
  commit({{0, 100}, {1, 50}}, {0, 1});
  commit({{0, 100}}, {0, 1});
  const RunStatus run = status(2);
  EXPECT_EQ(run.committed_tokens, 250);
  EXPECT_EQ(run.islands[0].tokens, 200);
  EXPECT_EQ(run.islands[1].tokens, 50);
  EXPECT_EQ(run.islands[0].last_round, 2);
  EXPECT_EQ(run.islands[1].last_round, 1);
  EXPECT_EQ(run.participating, 1);
}

TEST_F(TallyTest, FragmentsDoNotCountTheSameTokensTwice) {
  commit({{0, 40}, {1, 40}}, {0, 1}, 0);
  commit({{0, 60}, {1, 60}}, {0, 1}, 1);  // The same 40 steps and 20 more.
  EXPECT_EQ(status(2).committed_tokens, 120);
  EXPECT_EQ(status(2).islands[0].tokens, 60);
}

TEST_F(TallyTest, TheAveragedShareWeighsWhoIsMissing) {
  commit({{0, 300}, {1, 100}}, {0, 1});
  EXPECT_DOUBLE_EQ(*status(2).averaged_share, 1);
  commit({{1, 100}}, {0, 1});  // Island 0 would have brought 300.
  EXPECT_DOUBLE_EQ(*status(2).averaged_share, 0.25);
  commit({{0, 0}, {1, 100}}, {0, 1});  // To abstain is no better.
  EXPECT_DOUBLE_EQ(*status(2).averaged_share, 0.25);
  commit({{0, 300}, {1, 100}}, {0, 1, 2});  // Of island 2 nothing is known: the mean, 200.
  EXPECT_DOUBLE_EQ(*status(3).averaged_share, 400.0 / 600);
  commit({{0, 0}}, {0});
  EXPECT_DOUBLE_EQ(*status(1).averaged_share, 0);
}

TEST_F(TallyTest, TheAlarmNamesLiveIslandsWithoutAPart) {
  commit({{0, 10}, {1, 10}}, {0, 1});
  commit({{0, 10}}, {0, 1});
  commit({{0, 10}}, {0, 1});
  EXPECT_THAT(status(2).alarm, IsEmpty());
  commit({{0, 10}}, {0, 1});
  EXPECT_EQ(status(2).alarm, "island 'i1' is live, but took no part in the last 3 commits");
  commit({{0, 10}, {1, 0}}, {0, 1});
  EXPECT_EQ(status(2).alarm, "island 'i1' is live, but brought nothing to the last 4 commits");
  RunStatus away = status(2);
  away.islands[1].state = IslandState::kAway;
  tally.fill(away, now);
  EXPECT_THAT(away.alarm, IsEmpty());
  commit({{0, 10}, {1, 10}}, {0, 1});
  EXPECT_THAT(status(2).alarm, IsEmpty());
}

TEST_F(TallyTest, ThePaceIsThatOfTheLastRoundsAndOfTheOneThatIsLate) {
  for (int i = 0; i < 4; ++i) commit({{0, 10}}, {0});
  EXPECT_DOUBLE_EQ(*status(1).rounds_per_minute, 6);
  EXPECT_DOUBLE_EQ(*status(1).seconds_left, 160);  // 80 steps at two seconds each.
  now += seconds(4);
  EXPECT_DOUBLE_EQ(*status(1).rounds_per_minute, 6);
  EXPECT_DOUBLE_EQ(*status(1).seconds_left, 156);
  now += seconds(46);  // Four rounds in 80 s.
  EXPECT_DOUBLE_EQ(*status(1).rounds_per_minute, 3);
  EXPECT_DOUBLE_EQ(*status(1).seconds_left, 300);
}

}  // namespace
}  // namespace atl::swarm
