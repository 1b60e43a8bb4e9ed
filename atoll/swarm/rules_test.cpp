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

// Who takes part, on graphs of few members.

struct Graph {
  std::vector<int32_t> members;
  std::map<int32_t, Begin> begun;
  Pairs no_links;

  Graph(int32_t num_members, Pairs missing) : no_links(std::move(missing)) {
    for (int32_t number = 0; number < num_members; ++number) {
      members.push_back(number);
      begun[number] = {.weight = 10};
    }
  }
  std::vector<int32_t> plan() const { return plan_members(members, begun, no_links); }
  /// The most weight of members that reach each other, of all subsets.
  int64_t most_weight() const {
    int64_t most = 0;
    for (uint32_t bits = 1; bits < 1U << members.size(); ++bits) {
      std::vector<int32_t> some;
      for (const int32_t number : members) {
        if ((bits >> static_cast<uint32_t>(number) & 1U) != 0) some.push_back(number);
      }
      if (reach_each_other(some, no_links)) most = std::max(most, weight(some));
    }
    return most;
  }
  int64_t weight(const std::vector<int32_t>& some) const {
    int64_t sum = 0;
    for (const int32_t number : some) sum += begun.at(number).weight;
    return sum;
  }
};

TEST(PlanMembersTest, AllThatReachEachOtherTakePart) {
  EXPECT_THAT(Graph(3, {}).plan(), ElementsAre(0, 1, 2));
  EXPECT_THAT(Graph(3, {{1, 7}, {7, 9}}).plan(), ElementsAre(0, 1, 2)) << "others' links";
  EXPECT_THAT(Graph(2, {{0, 1}}).plan(), ElementsAre(0));
}

TEST(PlanMembersTest, WhoLacksMostLinksIsLeftOutThenWhoHasLeastWeight) {
  EXPECT_THAT(Graph(4, {{0, 1}, {0, 2}, {0, 3}}).plan(), ElementsAre(1, 2, 3));
  Graph halves(4, {{0, 2}, {0, 3}, {1, 2}, {1, 3}});
  halves.begun.at(1).weight = 11;
  EXPECT_THAT(halves.plan(), ElementsAre(0, 1));
}

/// Against all subsets: nobody is left out for nothing, and the weight is nearly the most there can
/// be (who lacks most links is not always who had best be left out).
TEST(PlanMembersTest, IsAsGoodAsAllSubsetsTriedByHand) {
  std::mt19937 random(1);
  int64_t sum = 0;
  int64_t sum_of_best = 0;
  for (int turn = 0; turn < 5000; ++turn) {
    const auto num_members = static_cast<int32_t>(2 + random() % 6);
    Pairs missing;
    const uint64_t percent = random() % 100;
    for (int32_t a = 0; a < num_members; ++a) {
      for (int32_t b = a + 1; b < num_members; ++b) {
        if (random() % 100 < percent) missing.emplace(a, b);
      }
    }
    Graph graph(num_members, missing);
    for (auto& [number, begun] : graph.begun) {
      begun.weight = static_cast<int64_t>(1 + random() % 3);
    }
    const std::vector<int32_t> members = graph.plan();
    ASSERT_FALSE(members.empty());
    ASSERT_TRUE(reach_each_other(members, graph.no_links));
    for (const int32_t number : graph.members) {
      std::vector<int32_t> more = members;
      if (has(more, number)) continue;
      more.insert(std::ranges::lower_bound(more, number), number);
      EXPECT_FALSE(reach_each_other(more, graph.no_links)) << "left out for nothing";
    }
    const int64_t most = graph.most_weight();
    EXPECT_EQ(members == graph.members, most == graph.weight(graph.members));
    sum += graph.weight(members);
    sum_of_best += most;
  }
  EXPECT_GT(sum * 20, sum_of_best * 19);
}

}  // namespace
}  // namespace atl::swarm
