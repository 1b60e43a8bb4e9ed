#include "atoll/swarm/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using Rates = std::vector<int64_t>;

/// How long the line is busy that is busy the longest, for a fragment of 1.
double busiest(const std::vector<double>& shares, const Rates& rates) {
  double most = 0;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double sent = 1 + (static_cast<double>(rates.size()) - 2) * shares[i];
    most = std::max(most, sent / static_cast<double>(rates[i]));
  }
  return most;
}

std::vector<double> fractions(const std::vector<int64_t>& shares, int64_t num_segments) {
  std::vector<double> out;
  for (const int64_t share : shares) {
    out.push_back(static_cast<double>(share) / static_cast<double>(num_segments));
  }
  return out;
}

TEST(SharesTest, EqualLinesHaveEqualShares) {
  EXPECT_EQ(shares_by_rate(32, Rates(4, 1'000'000)), equal_shares(32, 4));
  EXPECT_EQ(shares_by_rate(31, Rates(4, 1'000'000)), equal_shares(31, 4));
}

TEST(SharesTest, WhereALineIsNotKnownOrOfNoMatterTheyAreEqual) {
  EXPECT_EQ(shares_by_rate(32, {100, 0, 100}), equal_shares(32, 3));
  EXPECT_EQ(shares_by_rate(32, {1, 100}), equal_shares(32, 2));
  EXPECT_EQ(shares_by_rate(32, {100}), equal_shares(32, 1));
}

TEST(SharesTest, ASlowLineOwnsLess) {
  // By hand: 1 + s_0 = 2 T, 1 + s_i = 3 T, s_0 + 2 s_i = 1: T = 1/2, so 0, 1/2, 1/2.
  EXPECT_THAT(shares_by_rate(32, {200, 300, 300}), ElementsAre(0, 16, 16));
  EXPECT_THAT(shares_by_rate(32, {1, 1000, 1000}), ElementsAre(0, 16, 16));
  EXPECT_THAT(shares_by_rate(10, {1000, 1, 1, 1}), ElementsAre(10, 0, 0, 0));
  EXPECT_THAT(shares_by_rate(0, {1, 2, 3}), ElementsAre(0, 0, 0));
}

/// No other division is done sooner: none of ten thousand that are tried at random.
TEST(SharesTest, TheBusiestLineIsDoneAsSoonAsCanBe) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  constexpr int64_t kSegments = 100'000;
  for (int turn = 0; turn < 50; ++turn) {
    Rates rates(3 + random() % 6);
    for (int64_t& rate : rates) rate = 1 + static_cast<int64_t>(1e6 * std::pow(uniform(random), 4));
    const auto shares = shares_by_rate(kSegments, rates);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}), kSegments);
    EXPECT_GE(std::ranges::min(shares), 0);
    const double time = busiest(fractions(shares, kSegments), rates);
    for (int attempt = 0; attempt < 200; ++attempt) {
      std::vector<double> other(rates.size());
      for (double& share : other) share = std::pow(uniform(random), 3);
      const double sum = std::accumulate(other.begin(), other.end(), 0.0);
      for (double& share : other) share /= sum;
      EXPECT_GE(busiest(other, rates), time * (1 - 1e-3));
    }
  }
}

TEST(CheckpointsTest, TheNewestInCommonAndTheNewestOfAll) {
  const Checkpoints long_ago = {{10, "a"}, {20, "b"}};
  const Checkpoints lately = {{20, "b"}, {30, "c"}};
  EXPECT_EQ(newest_common_checkpoint({long_ago, lately}), std::pair(int64_t{20}, std::string("b")));
  EXPECT_EQ(newest_common_checkpoint({lately, {{30, "x"}}}), std::nullopt);
  EXPECT_EQ(newest_common_checkpoint({}), std::nullopt);
  EXPECT_EQ(newest_checkpoint({long_ago, lately}, 100, 100), Checkpoint(30, "c"));
  EXPECT_EQ(newest_checkpoint({long_ago, lately}, 25, 29), Checkpoint(20, "b"));
  EXPECT_EQ(newest_checkpoint({long_ago, lately}, 5, 9), std::nullopt);
  EXPECT_EQ(newest_checkpoint({lately, {{30, "x"}}}, 100, 100), Checkpoint(20, "b"));
}

TEST(CheckpointsTest, WhereNothingCommittedIsLostTheOneThatMostHold) {
  const std::vector<Checkpoints> held = {
      {{30, "c"}, {40, "d"}}, {{20, "b"}, {30, "c"}}, {{20, "b"}, {30, "c"}, {45, "e"}}};
  EXPECT_EQ(newest_checkpoint(held, /*committed_step=*/30, 100), Checkpoint(30, "c"));
  EXPECT_EQ(newest_checkpoint(held, /*committed_step=*/40, 100), Checkpoint(45, "e"));
  EXPECT_EQ(newest_checkpoint(held, /*committed_step=*/50, 100), Checkpoint(45, "e"));
}

TEST(CheckpointsTest, TheOneThatMostHold) {
  const std::vector<Checkpoints> held = {
      {{10, "a"}, {20, "b"}, {30, "c"}}, {{10, "a"}, {20, "b"}, {30, "x"}}, {{10, "a"}, {40, "d"}}};
  EXPECT_EQ(most_held_checkpoint(held, 0, 100, 1), Checkpoint(10, "a"));
  EXPECT_EQ(most_held_checkpoint(held, 11, 100, 1), Checkpoint(20, "b"));
  EXPECT_EQ(most_held_checkpoint(held, 11, 100, 3), std::nullopt);
  EXPECT_EQ(most_held_checkpoint(held, 21, 39, 1), std::nullopt) << "which of the two?";
  EXPECT_EQ(most_held_checkpoint(held, 21, 40, 1), Checkpoint(40, "d"));
}

}  // namespace
}  // namespace atl::swarm
