#include "atoll/coordinator/round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pointwise;
using testing::SizeIs;

constexpr Time kNow{};
const std::set<int32_t> kAll{0, 1, 2};
const std::vector<int32_t> kThree{0, 1, 2};

Begin begin_of(int32_t member, int64_t weight = 10) {
  return {.header = {.round = 7},
          .fragment = 1,
          .step = 140,
          .weight = weight,
          .count = 5000,
          .segment_values = 1024,
          .num_trained = 100 + member};
}

Prepared prepared(std::vector<double> squares = {1, 1, 1}) {
  return {.header = {.round = 7}, .measures = {.squares = std::move(squares)}};
}

/// Round 7 of three members, who have all begun it and exchange.
class RoundTest : public testing::Test {
 protected:
  RoundTest() {
    for (const int32_t member : kAll) round.begin(member, begin_of(member), kNow);
    round.open(7, kThree);
  }
  void prepare(std::initializer_list<int32_t> members) {
    for (const int32_t member : members) round.prepare(member, prepared());
  }

  Round round;
};

TEST_F(RoundTest, AnAttemptHasTheWeightsAndSharesOfItsMembers) {
  round.begin(1, begin_of(1, 30), kNow);
  const OpenAttempt attempt = round.open(7, kThree);
  EXPECT_EQ(attempt.header.round, 7);
  EXPECT_EQ(attempt.header.attempt, 1) << "the second one";
  EXPECT_EQ(attempt.fragment, 1);
  EXPECT_EQ(attempt.count, 5000);
  EXPECT_THAT(attempt.members, ElementsAre(0, 1, 2));
  EXPECT_THAT(attempt.weights, ElementsAre(10, 30, 10));
  EXPECT_THAT(attempt.shares, ElementsAre(1, 2, 2));
}

TEST_F(RoundTest, AttemptsRiseAboveWhatAMemberKnowsOf) {
  Begin again = begin_of(1);
  again.header.attempt = 5;
  EXPECT_FALSE(round.begin(1, again, kNow)) << "it has begun it before";
  EXPECT_EQ(round.open(7, kThree).header.attempt, 6);
}

TEST_F(RoundTest, WhoDiffersIsNamedWithHow) {
  Begin other = begin_of(1);
  other.count = 4000;
  const auto contradiction = round.contradiction(1, other);
  ASSERT_TRUE(contradiction.has_value());
  EXPECT_EQ(contradiction->first, 0);
  EXPECT_THAT(contradiction->second, HasSubstr("5000 values against 4000"));
  EXPECT_FALSE(round.contradiction(1, begin_of(1, 77)).has_value()) << "weights differ";
}

TEST(NewRoundTest, WaitsSinceItsFirstBegin) {
  Round round;
  round.begin(0, begin_of(0), kNow + std::chrono::seconds(1));
  round.begin(1, begin_of(1), kNow + std::chrono::seconds(9));
  EXPECT_EQ(round.waits_since(), kNow + std::chrono::seconds(1));
  EXPECT_TRUE(round.have_begun({0, 1}));
  EXPECT_FALSE(round.have_begun({0, 2}));
  Begin alone = begin_of(0);
  alone.count = 1;
  EXPECT_TRUE(round.contradiction(0, alone).has_value()) << "with member 1";
  round.forget(1);
  EXPECT_FALSE(round.contradiction(0, alone).has_value()) << "it may correct itself";
}

TEST_F(RoundTest, IsCompleteWhenAllWhoAreLeftHavePrepared) {
  EXPECT_FALSE(round.is_complete(kAll));
  prepare({0, 1});
  EXPECT_FALSE(round.is_complete(kAll));
  EXPECT_TRUE(round.is_complete({0, 1})) << "what is lost since has sent its part";
  EXPECT_FALSE(round.is_complete({0, 2}));
  EXPECT_FALSE(round.is_complete({})) << "nobody could apply it";
  prepare({2});
  EXPECT_TRUE(round.is_complete(kAll));
}

TEST_F(RoundTest, WhoLetsGoOfItsExchangeBreaksTheAttempt) {
  prepare({0});
  round.let_go(0);
  EXPECT_TRUE(round.is_whole()) << "what it has prepared it still has";
  round.let_go(1);
  prepare({2});
  EXPECT_FALSE(round.is_complete({0, 2}));
  EXPECT_FALSE(round.goes_on(kAll, kThree));
  round.open(7, kThree);
  EXPECT_TRUE(round.is_whole());
  EXPECT_THAT(round.prepared(), IsEmpty());
}

TEST_F(RoundTest, WhoIsForgottenIsInNoCommit) {
  prepare({0, 1, 2});
  round.forget(1);
  EXPECT_FALSE(round.is_complete(kAll));
  EXPECT_FALSE(round.has_begun(1));
  round.open(7, {0, 2});
  round.forget(1);
  EXPECT_TRUE(round.is_whole()) << "it was in it no more";
}

TEST_F(RoundTest, AnAttemptGoesOnWhileItsMembersAndLinksDo) {
  EXPECT_TRUE(round.goes_on(kAll, kThree));
  EXPECT_FALSE(round.goes_on({0, 1}, kThree)) << "one is lost";
  EXPECT_FALSE(round.goes_on(kAll, {0, 1})) << "one is not to take part";
  EXPECT_FALSE(Round().goes_on(kAll, kThree)) << "there is none";
  round.break_link({2, 3});
  EXPECT_TRUE(round.goes_on(kAll, kThree)) << "a link that it does not use";
  round.break_link({0, 1});
  EXPECT_FALSE(round.goes_on(kAll, kThree));
}

TEST_F(RoundTest, WhoIsLeftOutAbstainsFromTheAttemptsThatFollow) {
  prepare({0, 1, 2});
  round.leave_out(1);
  EXPECT_FALSE(round.is_complete(kAll));
  EXPECT_FALSE(round.goes_on(kAll, kThree));
  EXPECT_THAT(round.open(7, kThree).weights, ElementsAre(10, 0, 10));
  round.begin(1, begin_of(1), kNow);  // It has not heard.
  EXPECT_THAT(round.open(7, kThree).weights, ElementsAre(10, 0, 10));
  EXPECT_TRUE(round.is_left_out(1));
}

TEST_F(RoundTest, ObjectsToWhatDoesNotFitTheAttempt) {
  EXPECT_EQ(round.objection_to(0, prepared()), "");
  EXPECT_THAT(round.objection_to(0, prepared({1, 1})), HasSubstr("other members than it has"));
  EXPECT_THAT(round.objection_to(0, prepared({1, 1, -1})), HasSubstr("a sum of squares that is"));
  prepare({0});
  EXPECT_THAT(round.objection_to(0, prepared()), HasSubstr("prepared round 7 twice"));
  round.let_go(1);
  EXPECT_EQ(round.objection_to(2, prepared({1, 1})), "") << "it is over, whoever is in it";
}

TEST_F(RoundTest, ContributionsAreAsLargeAsAllPartsThatAreKnown) {
  round.begin(1, begin_of(1, 0), kNow);
  round.prepare(0, prepared({9, 0, 1}));
  round.prepare(2, prepared({16, 0, 3}));
  const auto norms = round.contributed();
  ASSERT_THAT(norms, SizeIs(2)) << "who abstains has none";
  EXPECT_EQ(std::pair(norms[0].number, norms[0].norm), std::pair(0, 5.0));
  EXPECT_EQ(std::pair(norms[1].number, norms[1].norm), std::pair(2, 2.0));
}

TEST(ComparedRoundTest, CosinesAreOfThoseWhoContribute) {
  Round round;
  for (const int32_t member : {0, 1, 2, 3}) {
    round.begin(member, begin_of(member, member == 1 ? 0 : 10), kNow);
  }
  round.open(7, {.members = {0, 1, 2, 3}});
  // Of 0 (1, 1), of 2 (3, 0), of 3 (0, -2): one half each.
  Prepared message = prepared({1, 0, 9, 0});
  message.measures.products = {1, 0, 0, 3, 0, 9, 0, 0, 0, 0};
  round.prepare(0, message);
  message.measures.products = {1, 0, 0, 0, 0, 0, -2, 0, 0, 4};
  round.prepare(2, message);
  const Outliers::Compared compared = round.compared();
  EXPECT_EQ(compared.num_values, 5000);
  const double half = std::sqrt(0.5);
  EXPECT_THAT(compared.cosines, Pointwise(testing::DoubleNear(1e-12),
                                          {1.0, half, -half, half, 1.0, 0.0, -half, 0.0, 1.0}));
}

TEST_F(RoundTest, FewAreNotCompared) {
  prepare({0, 1, 2});
  EXPECT_THAT(round.compared().cosines, IsEmpty());
}

TEST_F(RoundTest, ItsResultHasNormsWhereAllHaveTold) {
  round.begin(1, begin_of(1, 0), kNow);
  round.prepare(0, prepared({9, 0, 1}));
  round.prepare(2, prepared({16, 0, 3}));
  EXPECT_THAT(round.result().norms, IsEmpty());
  round.prepare(1, prepared({0, 0, 0}));
  EXPECT_THAT(round.result().norms, ElementsAre(5, 0, 2));
}

TEST_F(RoundTest, ItsResultNamesWhoWasInItWithWhat) {
  prepare({1, 2});
  const Committed committed = round.result();
  EXPECT_EQ(committed.attempt, 0);
  EXPECT_EQ(committed.held, (Held{.fragment = 1, .round = 7, .step = 140}));
  EXPECT_THAT(committed.members, ElementsAre(0, 1, 2));
  EXPECT_THAT(committed.weights, ElementsAre(10, 10, 10));
  EXPECT_THAT(committed.num_trained, ElementsAre(100, 101, 102));
}

TEST(OpenRoundsTest, ARoundOfTheSameFragmentThatWasLeftBehindWillNeverBe) {
  OpenRounds rounds;
  for (const int64_t number : {3, 4, 5, 6, 9}) {
    Begin begin = begin_of(0);
    begin.fragment = number == 4 ? 0 : 1;
    rounds.begin(number).begin(0, begin, kNow);
  }
  rounds.begin(8);  // Nobody has begun it any more.
  rounds.settle(5, 1);
  EXPECT_THAT(rounds.numbers(), ElementsAre(4, 6, 9));
  EXPECT_EQ(rounds.highest(), 9);
  EXPECT_EQ(rounds.find(5), nullptr);
}

}  // namespace
}  // namespace atl::swarm
