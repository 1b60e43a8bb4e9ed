#include "atoll/openai/fair_shares.h"

#include <gtest/gtest.h>

#include <vector>

namespace atl::openai {
namespace {

TEST(FairSharesTest, LetsInAtOnceWhileThereIsRoomAndThenInOrder) {
  FairShares shares({.running = 2, .waiting = 10}, {1});
  const auto a = shares.apply(0, 1, 1);
  const auto b = shares.apply(0, 1, 1);
  const auto c = shares.apply(0, 1, 1);
  const auto d = shares.apply(0, 1, 1);
  EXPECT_TRUE(shares.is_running(*a) && shares.is_running(*b));
  EXPECT_FALSE(shares.is_running(*c) || shares.is_running(*d));
  shares.leave(*b);
  EXPECT_TRUE(shares.is_running(*c));
  EXPECT_FALSE(shares.is_running(*d));
  EXPECT_EQ(shares.num_running(), 2);
  EXPECT_EQ(shares.num_waiting(), 1);
  shares.leave(*d);  // It waits no more.
  EXPECT_EQ(shares.num_waiting(), 0);
}

TEST(FairSharesTest, RefusesWhatIsTooMuchInAllOrForAKey) {
  FairShares shares({.running = 1, .waiting = 5}, {1, 1, 1});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(shares.apply(0, 1, 1));
  EXPECT_FALSE(shares.apply(0, 1, 1)) << "of this key two wait";
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(shares.apply(1, 1, 1)) << "another has room";
  EXPECT_TRUE(shares.apply(2, 1, 1));
  EXPECT_FALSE(shares.apply(2, 1, 1)) << "five wait in all";
}

TEST(FairSharesTest, AnOnlyKeyHasAllPlacesToWait) {
  FairShares shares({.running = 1, .waiting = 5}, {1});
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(shares.apply(0, 1, 1));
  EXPECT_FALSE(shares.apply(0, 1, 1));
}

TEST(FairSharesTest, RefusesWhatIsTooLongToWait) {
  FairShares shares({.running = 1, .waiting_bytes = 100}, {1, 1});
  const auto running = shares.apply(0, 1, 1000);
  ASSERT_TRUE(running) << "it need not wait";
  const auto first = shares.apply(0, 1, 50);
  ASSERT_TRUE(first);
  EXPECT_FALSE(shares.apply(0, 1, 1)) << "of this key 50 bytes wait";
  EXPECT_TRUE(shares.apply(1, 1, 20)) << "another has room";
  shares.leave(*first);
  EXPECT_TRUE(shares.apply(0, 1, 50));
  shares.leave(*running);
  EXPECT_EQ(shares.num_waiting(), 1) << "the other's was let in";
  EXPECT_TRUE(shares.apply(1, 1, 50));
}

TEST(FairSharesTest, WhoAsksMuchHoldsUpNobodyElse) {
  FairShares shares({.running = 1, .waiting = 100}, {1, 1});
  auto running = shares.apply(0, 1, 1);
  std::vector<FairShares::Ticket> greedy;
  for (int i = 0; i < 10; ++i) greedy.push_back(*shares.apply(0, 1, 1));
  const auto modest = shares.apply(1, 1, 1);
  shares.leave(*running);
  EXPECT_TRUE(shares.is_running(*modest));
  shares.leave(*modest);
  EXPECT_TRUE(shares.is_running(greedy[0]));
}

TEST(FairSharesTest, SharesAreKeptWhenAllWantMore) {
  FairShares shares({.running = 12, .waiting = 100}, {1, 2});
  const auto filler = shares.apply(0, 12, 1);
  std::vector<FairShares::Ticket> first;
  std::vector<FairShares::Ticket> second;
  for (int i = 0; i < 20; ++i) {
    first.push_back(*shares.apply(0, 1, 1));
    second.push_back(*shares.apply(1, 1, 1));
  }
  shares.leave(*filler);
  int of_first = 0;
  int of_second = 0;
  for (int i = 0; i < 20; ++i) {
    of_first += shares.is_running(first[i]) ? 1 : 0;
    of_second += shares.is_running(second[i]) ? 1 : 0;
  }
  EXPECT_EQ(of_first, 4);
  EXPECT_EQ(of_second, 8);
}

TEST(FairSharesTest, ALargeRequestIsNotPassedForEver) {
  FairShares shares({.running = 4, .waiting = 10}, {1, 1});
  const auto a = shares.apply(0, 3, 1);
  const auto large = shares.apply(1, 4, 1);
  const auto small = shares.apply(0, 1, 1);
  EXPECT_FALSE(shares.is_running(*large) || shares.is_running(*small));
  shares.leave(*a);
  EXPECT_TRUE(shares.is_running(*large));
  shares.leave(*large);
  EXPECT_TRUE(shares.is_running(*small));
  shares.leave(*small);
  EXPECT_TRUE(shares.is_running(*shares.apply(0, 9, 1))) << "larger than all: alone";
}

}  // namespace
}  // namespace atl::openai
