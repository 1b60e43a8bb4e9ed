#include "atoll/coordinator/lockstep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

/// Members 0, 1 and 2, of whom the last is behind.
class LockstepTest : public testing::Test {
 protected:
  LockstepTest() {
    book.apply(TermBegan{1});
    book.apply(RunBegan{"r1", 0, 2, {}, "text"});
    for (const int32_t number : {0, 1, 2}) {
      book.apply(Admitted{{number, "island", "here:1"}});
      roster.seat(number, static_cast<uint64_t>(number), now);
      if (number < 2) roster.at(number).take_part(0, now);
    }
  }
  /// To a member that has trained on all but so many.
  void grant(int32_t number, int64_t count, int64_t num_left) {
    book.apply(Granted{{number}, count});
    roster.at(number).note_trained(count - num_left);
  }

  Time now{};
  Book book;
  Roster roster{{}, now};
  OpenRounds rounds;
  Lockstep pace{{.num_fragments = 3, .steps_ahead = 4}};
};

TEST_F(LockstepTest, NobodyCallsRoundsOrGoesOnWithoutOthers) {
  EXPECT_FALSE(pace.call(book, roster, now));
  EXPECT_FALSE(pace.due().has_value());
  EXPECT_EQ(pace.grace_ends({0, 1}), Time::max());
  EXPECT_EQ(pace.report_every(book), 0);
}

TEST_F(LockstepTest, WhoAreLevelGetRowsTogether) {
  grant(0, 10, 4);
  grant(1, 10, 4);
  grant(2, 10, 4);
  EXPECT_THAT(pace.grants(book, roster, false), IsEmpty());
  roster.at(1).note_trained(7);
  const auto level = pace.grants(book, roster, false);
  ASSERT_THAT(level, SizeIs(1));
  EXPECT_THAT(level[0].numbers, ElementsAre(0, 1)) << "though one alone is short";
  EXPECT_EQ(level[0].count, 4);
  roster.at(2).note_trained(7);
  const auto all = pace.grants(book, roster, false);
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_THAT(all[1].numbers, ElementsAre(2));
  roster.at(2).put_away("reset", now);
  EXPECT_THAT(pace.grants(book, roster, false), SizeIs(1)) << "who is away trains on nothing";
  EXPECT_THAT(pace.grants(book, roster, true)[0].numbers, ElementsAre(0, 1, 2))
      << "rounds wait for it";
}

TEST_F(LockstepTest, ANewcomerIsWaitedForAfterAFullPeriod) {
  rounds.begin(7);
  EXPECT_EQ(pace.reinstated(roster.at(2), book, roster, rounds).first_round, 7 + 1 + 3);
  roster.at(0).put_away("reset", now);
  roster.at(1).put_away("reset", now);
  EXPECT_EQ(pace.reinstated(roster.at(2), book, roster, rounds).first_round, 0) << "it is alone";
}

TEST_F(LockstepTest, WhoWasAwayGoesOnWhereTheOthersAre) {
  roster.at(2).contribute();
  roster.at(0).report({.step = 70}, now);
  roster.at(1).report({.step = 90}, now);
  const Reinstated reinstated = pace.reinstated(roster.at(2), book, roster, rounds);
  EXPECT_EQ(reinstated.first_round, 0);
  EXPECT_EQ(reinstated.step, 90);
}

TEST_F(LockstepTest, WhoTrainsOrWasNotWaitedForHoldsUpNothing) {
  Round round;
  round.begin(0, {}, now + seconds(50));
  EXPECT_EQ(pace.idle_since(roster.at(1), round), now + seconds(50));
  roster.at(1).report({.num_trained = 1}, now + seconds(70));
  EXPECT_EQ(pace.idle_since(roster.at(1), round), now + seconds(70));
}

TEST_F(LockstepTest, AStopTravelsWithTheCommitsThatAreNotDecidedYet) {
  EXPECT_FALSE(pace.stops_with({.index = 1}));
  book.apply(Committed{.held = {.round = 0}});
  pace.stop(book, rounds);
  EXPECT_TRUE(pace.is_stopping());
  EXPECT_FALSE(pace.stops_with({.index = 0}));
  EXPECT_TRUE(pace.stops_with({.index = 1}));
  pace.begin(book);
  EXPECT_TRUE(pace.stops_with({.index = 1})) << "whatever it begins again from";
}

}  // namespace
}  // namespace atl::swarm
