// What waits on the board, and for whom.
#include "atoll/collective/session_board.h"

#include <gtest/gtest.h>

namespace atl::collective {
namespace {

class SessionBoardTest : public testing::Test {
 protected:
  bool is_cancelled_ = false;
  SessionBoard board_{[this] { return is_cancelled_; }};
};

TEST_F(SessionBoardTest, ARoundThatIsBegunLateIsNoMissedOneAnyMore) {
  board_.committed({.round = 1}, /*begun=*/false);
  board_.committed({.round = 2}, /*begun=*/false);
  board_.note_begun(2);
  EXPECT_TRUE(board_.is_committed(2));
  EXPECT_EQ(board_.take_commit(2)->round, 2);
  EXPECT_EQ(board_.take_missed()->round, 1);
  EXPECT_FALSE(board_.take_missed());
}

TEST_F(SessionBoardTest, WhatIsCommittedIsNotDueAnyMore) {
  board_.called({.round = 3});
  board_.committed({.round = 3}, /*begun=*/false);
  EXPECT_FALSE(board_.take_due());
  board_.called({.round = 4});
  EXPECT_EQ(board_.take_due()->round, 4);
  EXPECT_FALSE(board_.take_due()) << "it is taken once";
}

TEST_F(SessionBoardTest, WhatHasComeCountsAfterAFailureToo) {
  board_.committed({.round = 1}, /*begun=*/true);
  board_.failed("lost", swarm::Ending::kMembership);
  EXPECT_TRUE(board_.take_commit(1));
  EXPECT_TRUE(board_.is_decided(2));
  EXPECT_EQ(board_.take_commit(2).error().message, "lost");
  EXPECT_EQ(board_.ending(), swarm::Ending::kMembership);
}

TEST_F(SessionBoardTest, UnitsComeInTheirOrder) {
  board_.leased({{.first = 3, .stride = 2, .count = 2}, {.first = 9, .stride = 1, .count = 1}});
  EXPECT_EQ(board_.next_unit(), 3);
  EXPECT_EQ(board_.next_unit(), 5);
  EXPECT_EQ(board_.next_unit(), 9);
}

TEST_F(SessionBoardTest, BeforeTheRunBeginsTheUserMayChangeTheirMind) {
  is_cancelled_ = true;
  EXPECT_EQ(board_.wait_for_start().error().message,
            "interrupted while waiting for the other islands");
  board_.started({.number = 2});
  EXPECT_TRUE(board_.wait_for_start());
}

}  // namespace
}  // namespace atl::collective
