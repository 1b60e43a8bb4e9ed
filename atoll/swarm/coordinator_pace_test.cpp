// Elastic pace: which rounds come, of which fragment, and where the run stands after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "atoll/testing/coordinator_harness.h"

namespace atl::swarm {
namespace {

using std::chrono::seconds;
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
  Begin begin_of(const Due& round) {
    Begin message = CoordinatorTest::begin(round.header.round);
    message.fragment = round.fragment;
    message.step = round.step;
    message.num_trained = trained;
    return message;
  }
  /// Both take part in the round that was called; its commit is last.
  void exchange(Coordinator& run) {
    const Due round = *std::exchange(due, std::nullopt);
    for (const uint64_t island : {1, 2}) {
      note(run.received(island, begin_of(round), now));
    }
    for (const uint64_t island : {1, 2}) {
      note(run.received(island, prepared(round.header.round), now));
    }
  }

  /// Of all commits until the run is over.
  std::vector<int64_t> steps_to_the_end(Coordinator& run, int64_t num_fragments, int64_t end = 20) {
    std::vector<int64_t> steps;
    trained_then.clear();
    for (int i = 0; i < 100 && run.book().last_step() < end; ++i) {
      if (!due) train(run, 1);
      if (!due) continue;
      EXPECT_EQ(due->fragment, due->header.round % num_fragments);
      EXPECT_EQ(due->base, run.book().last_round());
      exchange(run);
      steps.push_back(last->held.step);
      trained_then.push_back(trained);
    }
    return steps;
  }

  std::optional<Due> due;
  std::optional<Commit> last;
  int64_t trained = 0;
  std::vector<int64_t> trained_then;  // By commit.
};

TEST_F(PaceTest, ARunEndsWithARoundOfEachFragment) {
  Coordinator run(elastic(20, 3), {}, now);
  begin(run);
  EXPECT_THAT(steps_to_the_end(run, 3), ElementsAre(2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19, 20));
  EXPECT_EQ(trained, 20) << "the last two rounds came at once";
  EXPECT_FALSE(due.has_value()) << "the run is over";
}

TEST_F(PaceTest, TheLastRoundsHaveAllRowsHoweverManyFragmentsThereAre) {
  for (const int64_t num_fragments : {1, 2, 4, 7, 8, 19, 20}) {
    SCOPED_TRACE(num_fragments);
    trained = 0;
    due.reset();
    Coordinator run(elastic(20, num_fragments), {}, now);
    begin(run);
    const auto steps = steps_to_the_end(run, num_fragments);
    ASSERT_GE(std::ssize(steps), num_fragments);
    EXPECT_TRUE(std::ranges::is_sorted(steps, std::less_equal())) << "each later than the last";
    EXPECT_EQ(steps.back(), 20);
    EXPECT_EQ(trained_then.at(steps.size() - static_cast<size_t>(num_fragments)), 20)
        << "of the first of the last rounds";
  }
}

/// Its rows are open, and no reason to call the next round at once.
TEST_F(PaceTest, WhoMissesARoundCallsNoOther) {
  Coordinator run(elastic(1000, 1), {}, now);
  begin(run);
  train(run, 2);
  const Due round = *std::exchange(due, std::nullopt);
  note(run.received(1, begin_of(round), now));
  now += seconds(40);  // The grace is over.
  note(run.received(2, Heartbeat{.header = kRun, .num_trained = trained}, now));
  note(run.received(1, Heartbeat{.header = kRun, .num_trained = trained}, now));
  note(run.tick(now));
  note(run.received(1, prepared(round.header.round, {}, {1}), now));
  ASSERT_TRUE(last.has_value());
  EXPECT_FALSE(due.has_value());
  train(run, 1);
  EXPECT_FALSE(due.has_value());
  train(run, 1);
  EXPECT_TRUE(due.has_value());
}

TEST_F(PaceTest, WhoDoesNotTrainAndBeginsNothingIsRemovedInTime) {
  CoordinatorOptions patient = elastic(100'000, 1);
  patient.round_timeout = seconds(60);
  Coordinator run(patient, {}, now);
  begin(run);
  std::optional<Time> removed;
  for (int i = 0; i < 500 && !removed; ++i) {
    now += std::chrono::milliseconds(200);
    trained += 1;
    note(run.received(1, Heartbeat{.header = kRun, .num_trained = trained}, now));
    note(run.received(2, Heartbeat{.header = kRun}, now));
    if (due) {
      note(run.received(1, begin_of(*due), now));
      due.reset();
    }
    const auto actions = note(run.tick(now));
    for (const auto& [to, attempt] : sent<OpenAttempt>(actions)) {
      note(run.received(to, prepared(attempt.header.round, {}, {1}), now));
    }
    for (const auto& [to, refused] : sent<Refused>(actions)) {
      EXPECT_EQ(to, 2U) << refused.reason;
      removed = now;
    }
  }
  ASSERT_TRUE(removed.has_value());
  EXPECT_GE(*removed - kStart, seconds(60));
  EXPECT_LE(*removed - kStart, seconds(95)) << "when the next round was open";
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

TEST_F(PaceTest, ARoundThatWasBegunBeforeAStopIsNoneOfItsRounds) {
  Coordinator run(elastic(1000, 2), {}, now);
  begin(run);
  train(run, 2);
  note(run.received(2, begin_of(*due), now));
  note(run.received(1, StopRequest{kRun}, now));
  for (const bool stops : {false, false, true}) {
    ASSERT_TRUE(due.has_value());
    exchange(run);
    EXPECT_EQ(last->stop, stops);
  }
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
  EXPECT_THAT(steps_to_the_end(run, 4, 10), ElementsAre(9, 10));
  EXPECT_GE(trained, 2) << "global batches that were left";
}

}  // namespace
}  // namespace atl::swarm
