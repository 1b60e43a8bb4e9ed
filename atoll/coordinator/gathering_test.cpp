#include "atoll/coordinator/gathering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/swarm/rules.h"

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using State = Seat::State;

/// A run of two islands; the test says who comes with what.
class GatheringTest : public testing::Test {
 protected:
  static CoordinatorOptions options() {
    return {.run = "r1", .replicas = 2, .most_lost = 100, .return_grace = seconds(5)};
  }
  void come(uint64_t connection, const std::string& name) {
    guests.come(connection, {.name = name}, now);
  }
  void be_ready(uint64_t connection, const std::string& name, const Checkpoints& checkpoints) {
    come(connection, name);
    guests.make_ready(connection, {.checkpoints = checkpoints});
  }
  /// The run has had members a and b, from step 0 to that one; they are away.
  void begin_before(int64_t step) {
    book.apply(TermBegan{1});
    book.apply(RunBegan{"r1", 0, 2, {}, "text"});
    for (const int32_t number : {0, 1}) {
      book.apply(Admitted{{number, number == 0 ? "a" : "b", "here:1"}});
      roster.restore(number, State::kAway, now);
    }
    book.apply(Committed{.held = {.step = step}});
  }
  Gathering::Decision decide() { return gathering.decide(book, guests, roster, 1, now); }

  Time now{};
  Book book;
  Guests guests{{}};
  Roster roster{{}, now};
  Gathering gathering{options()};
};

TEST_F(GatheringTest, ARunBeginsWhenEnoughAreReady) {
  be_ready(1, "a", {{0, "p"}});
  come(2, "b");
  EXPECT_EQ(decide().news.value().sentence, "1 of 2 islands are here");
  guests.make_ready(2, {.checkpoints = {{0, "p"}}});
  EXPECT_TRUE(decide().begins);
}

TEST_F(GatheringTest, WhileSomebodyHoldsTheStateNothingBegins) {
  begin_before(40);
  be_ready(1, "c", {{40, "p"}});
  be_ready(2, "d", {{40, "p"}});
  roster.at(0).take_part(0, now);
  EXPECT_FALSE(decide().begins);
  EXPECT_FALSE(gathering.is_due(now + seconds(1000)));
}

TEST_F(GatheringTest, TheOthersHaveTheirTimeToComeBack) {
  begin_before(40);
  be_ready(1, "a", {{40, "p"}});
  EXPECT_FALSE(decide().begins);
  EXPECT_FALSE(gathering.is_due(now + seconds(9)));
  now += seconds(10);
  EXPECT_TRUE(gathering.is_due(now));
  EXPECT_TRUE(decide().begins);
  EXPECT_FALSE(gathering.is_due(now)) << "it has begun";
}

TEST_F(GatheringTest, WhenAllAreBackNobodyWaits) {
  begin_before(40);
  be_ready(1, "a", {{40, "p"}});
  be_ready(2, "b", {{40, "p"}});
  EXPECT_TRUE(decide().begins);
}

TEST_F(GatheringTest, WhoWasToldToJoinAgainIsWaitedFor) {
  begin_before(40);
  roster.clear();
  gathering.await("b");
  be_ready(1, "a", {{40, "p"}});
  be_ready(2, "c", {{40, "p"}});
  EXPECT_FALSE(decide().begins);
  be_ready(3, "b", {{40, "p"}});
  EXPECT_TRUE(decide().begins);
}

TEST_F(GatheringTest, WhoIsBehindOfALostStateJoinsAgain) {
  begin_before(40);
  roster.at(1).hear(now);
  ASSERT_EQ(roster.at(1).state(), State::kBehind);
  EXPECT_THAT(decide().removed, IsEmpty()) << "the other may come back";
  now += seconds(10);
  EXPECT_THAT(decide().removed, ElementsAre(1));
}

TEST_F(GatheringTest, WhatIsTooOldWaitsForWhoHoldsMoreAndSaysSoOnce) {
  begin_before(400);
  be_ready(1, "a", {{200, "p"}});
  be_ready(2, "b", {{200, "p"}});
  decide();
  now += seconds(10);
  const auto decision = decide();
  EXPECT_FALSE(decision.begins);
  ASSERT_TRUE(decision.news);
  EXPECT_THAT(decision.news->sentence,
              HasSubstr("the run was at step 400, and what is here is not enough: "
                        "'a' step 200 (p), 'b' step 200 (p)"));
  EXPECT_EQ(gathering.notice(), decision.news->sentence);
  now += seconds(10);
  EXPECT_FALSE(decide().news);
  gathering.end();
  EXPECT_EQ(gathering.notice(), "");
}

TEST_F(GatheringTest, ItBeginsFromWhatLosesLeast) {
  be_ready(1, "a", {{20, "p"}, {40, "q"}});
  be_ready(2, "b", {{20, "p"}});
  const auto found = gathering.find_beginning(book, guests, 1);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 40);
  EXPECT_THAT(found->islands, ElementsAre(Key("a")));
}

TEST_F(GatheringTest, WithoutNewcomersItBeginsFromWhatAllHave) {
  CoordinatorOptions fixed = options();
  fixed.takes_newcomers = false;
  be_ready(1, "a", {{20, "p"}, {40, "q"}});
  be_ready(2, "b", {{20, "p"}});
  const auto found = Gathering(fixed).find_beginning(book, guests, 2);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 20);
  EXPECT_THAT(found->islands, ElementsAre(Key("a"), Key("b")));
}

TEST_F(GatheringTest, WhoHoldsNothingDoesNotTakeOthersBackToTheBeginning) {
  be_ready(1, "a", {{0, "p"}});
  be_ready(2, "b", {{0, "p"}, {20, "q"}});
  be_ready(3, "c", {{0, "p"}});
  EXPECT_THAT(gathering.find_beginning(book, guests, 1)->islands, ElementsAre(Key("b")));
  CoordinatorOptions fixed = options();
  fixed.takes_newcomers = false;
  EXPECT_EQ(Gathering(fixed).find_beginning(book, guests, 1)->step, 20);
}

TEST(GuestsTest, FactsAreThoseOfTheFirstWhoIsReady) {
  Guests guests({});
  guests.come(1, {.name = "a"}, {});
  guests.come(2, {.name = "b"}, {});
  EXPECT_THAT(guests.objection_to(1, {}), HasSubstr("checkpoints"));
  guests.make_ready(1, {{}, {{"data", "d"}}, {{0, "p"}}});
  EXPECT_THAT(guests.objection_to(1, {{}, {}, {{0, "p"}}}), HasSubstr("ready twice"));
  EXPECT_EQ(guests.objection_to(2, {{}, {{"data", "e"}}, {{0, "p"}}}),
            "data: the run has d, this island e");
  EXPECT_EQ(guests.objection_to(2, {{}, {}, {{0, "p"}}}), "data: the run has d, this island none");
  EXPECT_EQ(guests.objection_to(2, {{}, {{"data", "d"}}, {{0, "p"}}}), "");
}

TEST(GuestsTest, KnowsWhoIsHereAndWhoIsReady) {
  Guests guests({});
  guests.come(1, {.name = "a"}, {});
  guests.come(2, {.name = "b"}, Time{} + seconds(20));
  guests.make_ready(2, {.checkpoints = {{0, "p"}, {30, "0123456789abcdef"}}});
  EXPECT_TRUE(guests.has("a"));
  EXPECT_FALSE(guests.is_ready("a"));
  EXPECT_TRUE(guests.is_ready("b"));
  EXPECT_THAT(guests.ready(), ElementsAre(2));
  EXPECT_EQ(guests.newest_checkpoints(), "'b' step 30 (0123456789ab)");
  EXPECT_THAT(guests.silent(Time{} + seconds(31), seconds(30)), ElementsAre(1));
  guests.forgive(Time{} + seconds(31));
  EXPECT_THAT(guests.silent(Time{} + seconds(31), seconds(30)), IsEmpty());
  EXPECT_EQ(guests.take(1).name, "a");
  EXPECT_FALSE(guests.has("a"));
}

}  // namespace
}  // namespace atl::swarm
