#include "atoll/run/island_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::run {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class IslandHistoryTest : public testing::Test {
 protected:
  Time at(Duration since_begin) const { return Time{} + since_begin; }
  IslandHistory history_;
};

Progress trained(int64_t steps, double computing, double waiting) {
  return {.step = steps,
          .tokens_per_s = static_cast<double>(steps) / (computing + waiting),
          .stall_share = waiting / (computing + waiting),
          .abstained_rounds = 1,
          .bytes_sent = 100 * steps,
          .bytes_received = 10 * steps,
          .trained = steps,
          .seconds = {.computing = computing, .waiting = waiting}};
}

TEST_F(IslandHistoryTest, WithoutALossTheSummaryIsThatOfItsProcess) {
  EXPECT_EQ(history_.heard(trained(3, 2, 1), at(seconds(9))), std::nullopt);
  const Summary last{.digest = "ab",
                     .bytes_sent = 7,
                     .stall_share = 0.5,
                     .steps_now = 4,
                     .seconds = {.computing = 2, .handling = 1}};
  EXPECT_EQ(to_json(history_.whole(last)), to_json(last));
}

/// Killed at 10 s; the next process is heard at 30 s, of which it trained for 4: it was away
/// for 16.
TEST_F(IslandHistoryTest, AnAbsenceLastsToTheFirstStepThatFollows) {
  history_.heard(trained(10, 6, 2), at(seconds(9)));
  history_.lost(at(seconds(10)));
  EXPECT_EQ(history_.heard(trained(5, 3, 1), at(seconds(30))), seconds(16));
  EXPECT_EQ(history_.heard(trained(6, 4, 1), at(seconds(31))), std::nullopt);
  EXPECT_EQ(history_.whole({}).away_seconds, 16);
  history_.lost(at(seconds(40)));
  history_.lost(at(seconds(41)));  // Before it trained: one absence.
  EXPECT_EQ(history_.heard(trained(1, 0.5, 0), at(milliseconds(43'500))), seconds(3));
  EXPECT_EQ(history_.whole({}).away_seconds, 19);
}

TEST_F(IslandHistoryTest, WhatKilledProcessesDidCounts) {
  history_.heard(trained(10, 6, 2), at(seconds(9)));
  history_.lost(at(seconds(10)));
  history_.heard(trained(5, 3, 1), at(seconds(30)));
  const Summary whole = history_.whole({.tokens_per_s = 2,
                                        .digest = "ab",
                                        .bytes_sent = 5,
                                        .bytes_received = 6,
                                        .stall_share = 0.5,
                                        .blocked_share = 0.5,
                                        .abstained_rounds = 2,
                                        .steps_now = 16,
                                        .seconds = {.computing = 4, .handling = 1, .waiting = 3}});
  EXPECT_EQ(whole.digest, "ab");
  EXPECT_EQ(whole.steps_now, 26);
  EXPECT_EQ(whole.bytes_sent, 1005);
  EXPECT_EQ(whole.bytes_received, 106);
  EXPECT_EQ(whole.abstained_rounds, 3);
  // Eight seconds of each: means.
  EXPECT_EQ(whole.stall_share, (0.25 + 0.5) / 2);
  EXPECT_EQ(whole.blocked_share, (0.25 + 0.5) / 2);
  EXPECT_EQ(whole.tokens_per_s, (1.25 + 2) / 2);
  EXPECT_EQ(whole.seconds, (SecondsSpent{.computing = 10, .handling = 1, .waiting = 5}));
  EXPECT_EQ(whole.seconds.waiting_share(), 6.0 / 16);
}

/// One that lost its place, and joined again by itself, counts from nothing.
TEST_F(IslandHistoryTest, ANewMembershipOfOneProcessCountsToo) {
  history_.heard(trained(10, 6, 2), at(seconds(9)));
  Progress again = trained(1, 1, 0);
  again.member = 2;
  EXPECT_EQ(history_.heard(again, at(seconds(12))), std::nullopt);
  EXPECT_EQ(history_.whole({.bytes_sent = 100, .steps_now = 1}).steps_now, 11);
  EXPECT_EQ(history_.whole({.bytes_sent = 100, .steps_now = 1}).bytes_sent, 1100);
  EXPECT_EQ(history_.whole({}).away_seconds, 0);
}

TEST_F(IslandHistoryTest, WhoIsKilledBeforeItTrainsAgainAndAgainStaysAway) {
  for (int turn = 0; turn < 2; ++turn) {
    history_.lost(at(seconds(1)));
    EXPECT_TRUE(history_.may_return());
  }
  history_.heard(trained(1, 1, 0), at(seconds(2)));
  for (int turn = 0; turn < 3; ++turn) {
    history_.lost(at(seconds(3)));
    EXPECT_TRUE(history_.may_return());
  }
  history_.lost(at(seconds(4)));
  EXPECT_FALSE(history_.may_return());
}

}  // namespace
}  // namespace atl::run
