// Elastic pace: which rounds come, of which fragment, and where the run stands after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "atoll/swarm/coordinator_harness.h"

namespace atl::swarm {
namespace {

using testing::ElementsAre;

/// Two islands of one speed; the test says how far they have trained.
class PaceTest : public CoordinatorTest {
 protected:
  static CoordinatorOptions elastic(int64_t steps, int64_t num_fragments) {
    CoordinatorOptions out = options();
    out.steps = steps;
    out.num_fragments = num_fragments;
    out.round_units = 4;
    out.steps_ahead = 100;
    return out;
  }
  void begin(Coordinator& run) {
    run.begin();
    note(start_two(run));
  }
  Coordinator::Actions note(Coordinator::Actions actions) {
    for (const auto& [to, called] : sent<Due>(actions)) due = called;
    for (const auto& [to, commit] : sent<Commit>(actions)) last = commit;
    return actions;
  }
  /// Both have trained on so many units more.
  void train(Coordinator& run, int64_t units) {
    trained += units;
    for (const uint64_t island : {1, 2}) {
      note(run.received(island, Heartbeat{.header = kRun, .num_trained = trained}, now));
    }
  }
  /// Both take part in the round that was called; its commit is last.
  void exchange(Coordinator& run) {
    const Due round = *std::exchange(due, std::nullopt);
    for (const uint64_t island : {1, 2}) {
      Begin begin = CoordinatorTest::begin(round.header.round);
      begin.fragment = round.fragment;
      begin.step = round.step;
      begin.num_trained = trained;
      note(run.received(island, begin, now));
    }
    for (const uint64_t island : {1, 2}) {
      note(run.received(island, prepared(round.header.round), now));
    }
  }

  std::optional<Due> due;
  std::optional<Commit> last;
  int64_t trained = 0;
};

TEST_F(PaceTest, ARunEndsWithARoundOfEachFragment) {
  Coordinator run(elastic(20, 3), {}, now);
  begin(run);
  std::vector<int64_t> fragments;
  std::vector<int64_t> steps;
  while (run.book().last_step() < 20 && steps.size() < 100) {
    if (!due) train(run, 2);
    ASSERT_TRUE(due.has_value()) << "after step " << run.book().last_step();
    EXPECT_EQ(due->fragment, due->header.round % 3);
    EXPECT_EQ(due->base, due->header.round - 1);
    exchange(run);
    fragments.push_back(last->held.fragment);
    steps.push_back(last->held.step);
  }
  EXPECT_THAT(steps, ElementsAre(2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20));
  EXPECT_EQ(trained, 20) << "the last two rounds came at once";
  EXPECT_THAT(fragments, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2));
  EXPECT_FALSE(due.has_value()) << "the run is over";
}

TEST_F(PaceTest, AStopTravelsWithTheCommitThatHasAllFragments) {
  Coordinator run(elastic(1000, 3), {}, now);
  begin(run);
  train(run, 2);
  exchange(run);
  EXPECT_FALSE(due.has_value());
  note(run.received(1, StopRequest{kRun}, now));
  train(run, 0);
  std::vector<int64_t> rounds;
  std::vector<bool> stops;
  while (due && rounds.size() < 3) {
    exchange(run);
    rounds.push_back(last->held.round);
    stops.push_back(last->stop);
  }
  EXPECT_THAT(rounds, ElementsAre(1, 2, 3));
  EXPECT_THAT(stops, ElementsAre(false, false, true));
}

TEST_F(PaceTest, ACalledRoundIsTheFirstOfAStop) {
  Coordinator run(elastic(1000, 2), {}, now);
  begin(run);
  train(run, 2);
  ASSERT_TRUE(due.has_value());
  note(run.received(1, StopRequest{kRun}, now));
  exchange(run);
  EXPECT_FALSE(last->stop);
  exchange(run);
  EXPECT_TRUE(last->stop);
}

/// Begun again so near to its end that there are fewer steps left than fragments.
TEST_F(PaceTest, StepsNeverFallWhereFewAreLeft) {
  CoordinatorOptions options = elastic(10, 4);
  Coordinator run(options, {}, now);
  run.begin();
  for (const uint64_t connection : {1, 2}) {
    run.opened(connection, now);
    run.received(connection, hello(connection == 1 ? "b" : "a"), now);
  }
  const Ready nearly{kRun, {{"data", "d"}}, {{8, "p"}}};
  run.received(1, nearly, now);
  note(run.received(2, nearly, now));
  std::vector<int64_t> steps;
  while (run.book().last_step() < 10 && steps.size() < 100) {
    if (!due) train(run, 1);
    if (!due) continue;
    exchange(run);
    steps.push_back(last->held.step);
  }
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps.back(), 10);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_GE(steps.front(), 8);
}

}  // namespace
}  // namespace atl::swarm
