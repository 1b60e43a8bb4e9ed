#include "atoll/coordinator/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Members 0 and 1 of a run of two fragments, whose rounds come every 4 units.
class ElasticTest : public testing::Test {
 protected:
  ElasticTest() {
    book.apply(TermBegan{1});
    book.apply(RunBegan{"r1", 0, 2, {}, "text"});
    for (const int32_t number : {0, 1}) {
      book.apply(Admitted{{number, "island", "here:1"}});
      roster.seat(number, static_cast<uint64_t>(number), now).take_part(0, now);
      book.apply(Granted{{number}, 100});
    }
  }
  static CoordinatorOptions options(int64_t steps = 0) {
    return {.steps = steps,
            .num_fragments = 2,
            .steps_ahead = 10,
            .round_units = 4,
            .silence_timeout = seconds(30)};
  }
  bool call() { return pace.call(book, roster, now); }
  void train(int32_t member, int64_t num_trained) { roster.at(member).note_trained(num_trained); }
  Begin begin_of(int64_t num_trained, int64_t weight = 10) const {
    return {.header = {.round = pace.due() ? pace.due()->header.round : 0},
            .weight = weight,
            .count = 10,
            .segment_values = 10,
            .num_trained = num_trained};
  }
  /// The round that was called, of both with so many units; it is committed.
  int64_t commit(int64_t num_trained) {
    Round round;
    for (const int32_t member : {0, 1}) round.begin(member, begin_of(num_trained), now);
    const Due due = *pace.due();
    round.open(due.header.round, {.members = {0, 1}});
    const int64_t step = pace.step_after(round, book);
    book.apply(Committed{.index = book.num_commits(),
                         .held = {due.fragment, due.header.round, step, {}},
                         .members = {0, 1},
                         .weights = {10, 10},
                         .num_trained = {num_trained, num_trained}});
    pace.settle(due.header.round);
    return step;
  }

  Time now = Time{} + seconds(1000);
  Book book;
  Roster roster{{}, now};
  OpenRounds rounds;
  Elastic pace{options()};
};

TEST_F(ElasticTest, ARoundIsCalledWhenAllTogetherHaveTrainedOnEnough) {
  train(0, 3);
  EXPECT_FALSE(call());
  train(1, 1);
  EXPECT_TRUE(call());
  EXPECT_EQ(pace.due()->header.round, 0);
  EXPECT_EQ(pace.due()->header.run, "r1");
  train(0, 50);
  EXPECT_FALSE(call()) << "one at a time";
}

TEST_F(ElasticTest, WhatMissedItsRoundCallsNoOther) {
  train(0, 4);
  ASSERT_TRUE(call());
  pace.settle(0);  // Without its rows: they are open still.
  EXPECT_FALSE(call());
  train(1, 4);
  EXPECT_TRUE(call());
}

TEST_F(ElasticTest, WhoIsNotLiveDoesNotCount) {
  train(0, 4);
  roster.at(0).put_away("reset", now);
  EXPECT_FALSE(call());
}

TEST_F(ElasticTest, TheLastStepsAreThoseOfTheLastRounds) {
  pace = Elastic(options(/*steps=*/6));  // 12 units.
  std::vector<int64_t> steps;
  for (int64_t trained = 1; trained <= 6; ++trained) {
    for (const int32_t member : {0, 1}) train(member, trained);
    while (call()) steps.push_back(commit(trained));
  }
  EXPECT_THAT(steps, ElementsAre(2, 4, 5, 6));
  EXPECT_FALSE(call()) << "it is over";
}

TEST_F(ElasticTest, OnlyWhatIsDueMayBeBegun) {
  EXPECT_EQ(pace.objection_to(begin_of(0), book), "") << "an earlier coordinator called it";
  Begin other = begin_of(0);
  other.header.round = 1;
  EXPECT_THAT(pace.objection_to(other, book), HasSubstr("where round 0 at step 0 is due"));
  other = begin_of(0);
  other.step = 1;
  EXPECT_THAT(pace.objection_to(other, book), HasSubstr("at step 1, where"));
}

TEST_F(ElasticTest, ARoundOfAnEarlierCoordinatorIsCalledAnew) {
  EXPECT_TRUE(pace.note_begin(0, book, roster, now));
  EXPECT_EQ(pace.due()->header.round, 0);
  EXPECT_FALSE(pace.note_begin(1, book, roster, now));
}

TEST_F(ElasticTest, AGraceIsThreeUsualDelaysInBounds) {
  train(0, 4);
  ASSERT_TRUE(call());
  EXPECT_EQ(pace.grace_ends({0, 1}), now + seconds(30)) << "nothing is known of them";
  const Time called = now;
  now += milliseconds(10);
  pace.note_begin(0, book, roster, now);
  EXPECT_EQ(pace.grace_ends({0}), called + milliseconds(500));
  now = called + seconds(2);
  pace.note_begin(1, book, roster, now);
  EXPECT_EQ(pace.grace_ends({0, 1}), called + seconds(6));
  now = called + seconds(29);
  pace.note_begin(1, book, roster, now);
  EXPECT_EQ(pace.grace_ends({0, 1}), called + seconds(30));
}

TEST_F(ElasticTest, ADelayRisesAtOnceAndFallsSlowly) {
  train(0, 4);
  ASSERT_TRUE(call());
  const Time called = now;
  pace.note_begin(0, book, roster, called + seconds(4));
  pace.note_begin(0, book, roster, called);
  EXPECT_EQ(pace.grace_ends({0}), called + seconds(9)) << "three times 4 - 4 / 4";
  pace.forget(0);
  EXPECT_EQ(pace.grace_ends({0}), called + seconds(30));
}

TEST_F(ElasticTest, RowsLastForTenSecondsAtEachOnesSpeed) {
  pace = Elastic({.steps_ahead = 10, .round_units = 1000});
  const auto report = [&](int32_t member, int64_t num_trained) {
    roster.at(member).report({.num_trained = num_trained}, now);
    pace.note_trained(member, roster.at(member), book, now);
  };
  report(0, 0);
  report(1, 0);
  EXPECT_THAT(pace.grants(book, roster, false), IsEmpty()) << "100 are there";
  now += seconds(2);
  report(0, 4);
  report(1, 40);
  const auto grants = pace.grants(book, roster, false);
  ASSERT_THAT(grants, SizeIs(1)) << "20 in ten seconds are there, 200 are not";
  EXPECT_THAT(grants[0].numbers, ElementsAre(1));
  EXPECT_EQ(grants[0].count, 50) << "a quarter of them";
}

TEST_F(ElasticTest, APauseIsNoMeasureOfSpeed) {
  pace = Elastic({.steps_ahead = 10, .round_units = 1000});
  pace.note_trained(0, roster.at(0), book, now);
  now += seconds(11);
  roster.at(0).report({.num_trained = 99}, now);
  pace.note_trained(0, roster.at(0), book, now);
  const auto grants = pace.grants(book, roster, false);
  ASSERT_THAT(grants, SizeIs(1));
  EXPECT_EQ(grants[0].count, 10) << "as if nothing were known";
}

TEST_F(ElasticTest, EightReportsComeToARound) {
  EXPECT_EQ(pace.report_every(book), 1);
  EXPECT_EQ(Elastic({.round_units = 160}).report_every(book), 10);
}

TEST_F(ElasticTest, AStopWaitsForARoundOfEachFragment) {
  pace.stop(book, rounds);
  EXPECT_TRUE(pace.is_stopping());
  EXPECT_TRUE(call()) << "at once";
  EXPECT_FALSE(pace.stops_with({.held = {.round = 0}}));
  EXPECT_TRUE(pace.stops_with({.held = {.round = 1}}));
}

TEST_F(ElasticTest, ARoundThatWasBegunIsNoneOfAStop) {
  train(0, 4);
  ASSERT_TRUE(call());
  rounds.begin(0).begin(0, begin_of(4), now);
  pace.stop(book, rounds);
  EXPECT_FALSE(pace.stops_with({.held = {.round = 1}}));
  EXPECT_TRUE(pace.stops_with({.held = {.round = 2}}));
}

TEST_F(ElasticTest, WhereARunBeginsAgainRoundsAreCountedAnew) {
  train(0, 4);
  ASSERT_TRUE(call());
  pace.stop(book, rounds);
  book.apply(RunBegan{"r1", 100, 2, {}, "text"});
  pace.begin(book);
  EXPECT_FALSE(pace.due().has_value());
  EXPECT_FALSE(pace.stops_with({.held = {.round = 50}}));
  EXPECT_TRUE(pace.stops_with({.held = {.round = 51}})) << "100 steps of 2 units are 50 rounds";
}

TEST_F(ElasticTest, WhoWasAwayCountsAtOnce) {
  rounds.begin(7);
  roster.at(0).report({.step = 70}, now);
  const Reinstated reinstated = pace.reinstated(roster.at(1), book, roster, rounds);
  EXPECT_EQ(reinstated.first_round, 0);
  EXPECT_EQ(reinstated.step, 0);
}

TEST_F(ElasticTest, WhatIsNotCountedMovesNoStep) {
  train(0, 4);
  ASSERT_TRUE(call());
  Round round;
  round.begin(0, begin_of(20), now);
  round.begin(1, begin_of(30, /*weight=*/0), now);
  round.open(0, {.members = {0, 1}});
  EXPECT_EQ(pace.step_after(round, book), 10) << "20 units of 2 to a step";
}

}  // namespace
}  // namespace atl::swarm
