#include "atoll/swarm/inbox.h"

#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

TEST(InboxTest, ItemsThatHoldNothingTakeRoomToo) {
  Inbox<int> inbox(1000);
  for (int i = 0; i < 1000; ++i) inbox.push(i);
  EXPECT_TRUE(inbox.overflowed());
  int num_held = 0;
  while (inbox.pop({})) ++num_held;
  EXPECT_GT(num_held, 10);
  EXPECT_LE(num_held * sizeof(int), 1000U);
}

TEST(InboxTest, WhatWasTakenMakesRoom) {
  Inbox<int> inbox(1000);
  for (int i = 0; i < 100; ++i) {
    inbox.push(i, 900);
    EXPECT_EQ(inbox.pop({}), i);
  }
  EXPECT_FALSE(inbox.overflowed());
}

}  // namespace
}  // namespace atl::swarm
