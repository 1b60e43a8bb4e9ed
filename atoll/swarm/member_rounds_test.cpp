#include "atoll/swarm/member_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

Header at(int64_t round, int32_t attempt = 0) { return {.round = round, .attempt = attempt}; }

/// Member 0, which has begun round 3 of fragment 1.
class MemberRoundsTest : public testing::Test {
 protected:
  MemberRoundsTest() {
    rounds.start({.number = 0, .num_commits = 5});
    rounds.begin(
        {.header = at(3, -1), .fragment = 1, .weight = 5, .count = 10, .segment_values = 1});
  }
  static OpenAttempt attempt(int32_t number, int64_t weight = 5) {
    return {.header = at(3, number),
            .fragment = 1,
            .count = 10,
            .segment_values = 1,
            .members = {0, 1},
            .weights = {weight, 6},
            .shares = {4, 6}};
  }
  static Commit commit(uint64_t index, const Digest& digest = {}, int32_t attempt = 0) {
    return {.header = at(3, attempt),
            .index = index,
            .held = {.fragment = 1, .round = 3, .digest = digest},
            .count = 10,
            .segment_values = 1,
            .members = {0, 1},
            .weights = {5, 6}};
  }
  void exchange(const Digest& digest = {}) {
    rounds.open(attempt(0));
    EXPECT_TRUE(rounds.prepare(3, 0, digest));
  }

  MemberRounds rounds;
};

TEST_F(MemberRoundsTest, WhatItPreparedItHas) {
  exchange();
  EXPECT_TRUE(rounds.commit(commit(5)));
  EXPECT_TRUE(rounds.is_level());
  EXPECT_FALSE(rounds.has_begun(3));
}

TEST_F(MemberRoundsTest, WhatItDidNotPrepareSoItLacks) {
  Digest other{};
  other[5] = std::byte{1};
  exchange(other);
  EXPECT_FALSE(rounds.commit(commit(5)));
  EXPECT_FALSE(rounds.is_level());
  EXPECT_TRUE(rounds.catch_up());
  EXPECT_FALSE(rounds.catch_up()) << "said before";
  EXPECT_EQ(rounds.num_caught_up(), 6U);
}

TEST_F(MemberRoundsTest, AnotherAttemptOrOneWithoutItIsNotItsOwn) {
  exchange();
  EXPECT_FALSE(rounds.commit(commit(5, {}, /*attempt=*/1)));
  rounds.begin({.header = at(3, -1), .count = 10, .segment_values = 1});
  exchange();
  Commit without = commit(6);
  without.members = {1};
  EXPECT_FALSE(rounds.commit(without));
}

/// It may be committed, and then is known by its digest.
TEST_F(MemberRoundsTest, WhatItPreparedIsRememberedThoughItsExchangeIsOver) {
  exchange();
  const auto again = rounds.say_again();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_EQ(again[0].header.attempt, 0);
  EXPECT_FALSE(rounds.prepare(3, 0, {})) << "until another attempt";
  EXPECT_TRUE(rounds.commit(commit(5)));
}

TEST_F(MemberRoundsTest, CommitsComeInTurn) {
  EXPECT_TRUE(rounds.is_known(commit(4)));
  EXPECT_FALSE(rounds.is_known(commit(5)));
  EXPECT_EQ(rounds.objection_to(commit(5)), "");
  EXPECT_THAT(rounds.objection_to(commit(6)), HasSubstr("commit 6, where 5 is next"));
  Commit empty = commit(5);
  empty.members.clear();
  EXPECT_NE(rounds.objection_to(empty), "");
}

TEST_F(MemberRoundsTest, AttemptsOfWhatWasBegunRise) {
  EXPECT_EQ(rounds.objection_to(attempt(0)), "");
  rounds.open(attempt(0));
  EXPECT_THAT(rounds.objection_to(attempt(0)), HasSubstr("not the next"));
  OpenAttempt other = attempt(1);
  other.header.round = 4;
  EXPECT_THAT(rounds.objection_to(other), HasSubstr("attempt 1 of round 4"));
  EXPECT_FALSE(rounds.prepare(3, 1, {})) << "it is not open";
}

TEST_F(MemberRoundsTest, WhoIsLeftOutAbstainsFromThereOn) {
  rounds.open(attempt(0, /*weight=*/0));
  EXPECT_EQ(rounds.say_again().at(0).weight, 0);
  EXPECT_THAT(rounds.objection_to(attempt(1, 5)), HasSubstr("another weight"));
}

TEST_F(MemberRoundsTest, ACalledRoundIsBegunOnce) {
  const auto due = [](int64_t round, int32_t fragment) {
    return Due{.header = at(round), .fragment = fragment};
  };
  EXPECT_FALSE(rounds.is_to_begin(due(3, 1))) << "it is begun";
  EXPECT_TRUE(rounds.is_to_begin(due(4, 0)));
  rounds.commit(commit(5));
  EXPECT_FALSE(rounds.is_to_begin(due(2, 1))) << "a newer one of its fragment is decided";
  EXPECT_TRUE(rounds.is_to_begin(due(5, 1)));
}

TEST(NewMemberRoundsTest, ANewcomerLacksWhatWasCommittedBeforeIt) {
  MemberRounds rounds;
  rounds.start({.num_commits = 5, .joins = true, .held = {{.fragment = 1, .round = 7}}});
  EXPECT_EQ(rounds.num_commits(), 5U);
  EXPECT_FALSE(rounds.is_level());
  EXPECT_FALSE(rounds.is_to_begin({.header = at(7), .fragment = 1}));
}

}  // namespace
}  // namespace atl::swarm
