#include "atoll/chain/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/base/random.h"
#include "atoll/testing/placement_bound.h"

namespace atl::chain {
namespace {

using testing::ElementsAre;

/// Draws of one seed, one behind the other.
struct Draw {
  uint64_t seed = 0;
  uint64_t index = 0;

  int32_t whole(int32_t first, int32_t last) {
    const double share = random_uniform(seed, 1, index++);
    return first + static_cast<int32_t>(share * (last - first + 1));
  }
  double speed() { return std::exp2(6 * random_uniform(seed, 1, index++)); }  // 1 to 64.
};

Host serving(Span layers, double speed = 1, int32_t max_layers = 0) {
  return {.speed = speed,
          .max_layers = std::max(max_layers, layers.size()),
          .layers = layers,
          .may_move = true,
          .serves = true};
}

void give(std::vector<Host>& hosts, const std::vector<Span>& spans) {
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (spans[i].size() > 0) hosts[i].layers = spans[i];
  }
}

TEST(PlacementTest, AGapIsFilledFirstAndThenTheWeakestLayers) {
  const std::vector<Host> hosts = {serving({0, 4}, 40), serving({6, 8}, 1), serving({8, 12}, 30)};
  std::vector<double> flow = flow_of(hosts, 12);
  EXPECT_EQ(num_gaps(flow), 2);
  EXPECT_EQ(bottleneck(flow), 0);
  EXPECT_EQ(best_span(flow, 4, 2), (Span{4, 6}));
  flow[4] = flow[5] = 9;
  EXPECT_EQ(best_span(flow, 4, 2), (Span{6, 8}));
  EXPECT_EQ(best_span(flow, 4, 1), (Span{6, 7}));
}

TEST(PlacementTest, WhereAllAreAlikeAHostTakesAllThatItCan) {
  EXPECT_EQ(best_span(std::vector<double>(32, 1.0), 5, 16), (Span{0, 16}));
  EXPECT_EQ(best_span(std::vector<double>(32, 1.0), 5, 99), (Span{0, 32}));
  EXPECT_EQ(best_span(std::vector<double>(32, 0.0), 5, 8), (Span{0, 8}));
}

TEST(PlacementTest, AChainsHostsGetLayersByTheirSpeedAsFarAsThereIsMemory) {
  const auto host = [](double speed, int32_t max_layers) {
    return Host{.speed = speed, .max_layers = max_layers};
  };
  EXPECT_THAT(shares({host(1, 32), host(3, 32)}, 32), ElementsAre(8, 24));
  EXPECT_THAT(shares({host(1, 32), host(3, 20)}, 32), ElementsAre(12, 20));
  EXPECT_THAT(shares({host(1, 4), host(3, 4)}, 32), ElementsAre(4, 4));
  EXPECT_THAT(shares({host(0.001, 8), host(3, 4)}, 4), ElementsAre(0, 4));
}

TEST(PlacementTest, SharesAreTheBestThereAre) {
  // Against all ways to share 7 layers between 3 hosts.
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Draw draw{seed};
    std::vector<Host> hosts(3);
    for (Host& host : hosts) host = {.speed = draw.speed(), .max_layers = draw.whole(3, 7)};
    const auto slowest = [&](const std::vector<int32_t>& sizes) {
      double least = 1e9;
      for (size_t i = 0; i < 3; ++i) {
        if (sizes[i] > hosts[i].max_layers || sizes[i] < 0) return 0.0;
        if (sizes[i] > 0) least = std::min(least, hosts[i].speed / sizes[i]);
      }
      return least;
    };
    double best = 0;
    for (int32_t a = 0; a <= 7; ++a) {
      for (int32_t b = 0; a + b <= 7; ++b) best = std::max(best, slowest({a, b, 7 - a - b}));
    }
    EXPECT_EQ(slowest(shares(hosts, 7)), best) << "seed " << seed;
  }
}

TEST(PlacementTest, ThoseThatComeTogetherMakeWholeChains) {
  std::vector<double> shares_of_bound;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw{seed};
    const int32_t num_layers = draw.whole(1, 80);
    std::vector<Host> hosts(static_cast<size_t>(draw.whole(1, 40)));
    int64_t room = 0;
    for (Host& host : hosts) {
      host = {.speed = draw.speed(), .max_layers = draw.whole(1, 40)};
      room += std::min(host.max_layers, num_layers);
    }
    const std::vector<Span> spans = place_newcomers(hosts, num_layers);
    for (size_t i = 0; i < hosts.size(); ++i) {
      ASSERT_TRUE((Span{0, num_layers}.holds(spans[i])));
      ASSERT_GE(spans[i].size(), 1);
      ASSERT_LE(spans[i].size(), hosts[i].max_layers);
    }
    give(hosts, spans);
    const std::vector<double> flow = flow_of(hosts, num_layers);
    const int64_t missing = std::max<int64_t>(0, num_layers - room);
    EXPECT_EQ(num_gaps(flow), missing) << "seed " << seed;
    if (missing == 0) {
      shares_of_bound.push_back(bottleneck(flow) / bottleneck_bound(hosts, num_layers));
    }
  }
  std::ranges::sort(shares_of_bound);
  EXPECT_GE(shares_of_bound.front(), 0.5);
  EXPECT_GE(shares_of_bound[shares_of_bound.size() / 2], 0.95);
}

TEST(PlacementTest, WithMemoryEnoughAChainIsAsQuickAsItsHostsTogether) {
  std::vector<Host> hosts;
  for (const double speed : {1.0, 2.0, 5.0}) hosts.push_back({.speed = speed, .max_layers = 30});
  hosts.resize(3);
  give(hosts, place_newcomers(hosts, 80));
  EXPECT_NEAR(bottleneck(flow_of(hosts, 80)), bottleneck_bound(hosts, 80), 1e-9);
}

TEST(PlacementTest, WhoComesLaterFillsWhatOthersLeaveOpen) {
  std::vector<Host> hosts = {serving({0, 10}), serving({22, 32})};
  hosts.push_back({.speed = 1, .max_layers = 8});
  hosts.push_back({.speed = 1, .max_layers = 8});
  give(hosts, place_newcomers(hosts, 32));
  EXPECT_EQ(num_gaps(flow_of(hosts, 32)), 0);
}

TEST(PlacementTest, NobodyLeavesALayerThatNoOtherServes) {
  // The last four layers are weak, and each of the others has one server only.
  EXPECT_EQ(best_move({serving({0, 4}, 100), serving({4, 8}, 1)}, 8), std::nullopt);
  // Another is there, but does not serve yet.
  std::vector<Host> hosts = {serving({0, 4}, 100), serving({0, 4}, 100), serving({4, 8}, 1)};
  hosts[1].serves = false;
  hosts[1].may_move = false;
  EXPECT_EQ(best_move(hosts, 8), std::nullopt);
  hosts[1] = serving({0, 4}, 100);
  EXPECT_EQ(best_move(hosts, 8), (Move{.host = 0, .layers = {4, 8}}));
}

TEST(PlacementTest, NobodyMovesForALittle) {
  // 10 and 8 for each half: 1.25 times is not enough; 10 and 5 is.
  const auto hosts = [](double weaker) {
    return std::vector<Host>{serving({0, 4}, 28), serving({0, 4}, 12), serving({4, 8}, weaker)};
  };
  EXPECT_EQ(best_move(hosts(27), 8), std::nullopt);
  EXPECT_EQ(best_move(hosts(16), 8), (Move{.host = 1, .layers = {4, 8}}));
}

TEST(PlacementTest, FixedHostsStay) {
  std::vector<Host> hosts = {serving({0, 4}, 9), serving({0, 4}, 9), serving({4, 8}, 1)};
  hosts[0].may_move = hosts[1].may_move = false;
  EXPECT_EQ(best_move(hosts, 8), std::nullopt);
}

TEST(PlacementTest, AModelThatCannotBeUsedIsMended) {
  // One of three is gone; memory of the others just suffices.
  std::vector<Host> hosts = {serving({0, 11}, 1, 16), serving({11, 22}, 1, 16)};
  int moves = 0;
  while (const auto move = best_move(hosts, 32)) {
    ASSERT_LT(++moves, 3);
    EXPECT_TRUE(move->fills_gap);
    hosts[move->host].layers = move->layers;
  }
  EXPECT_EQ(num_gaps(flow_of(hosts, 32)), 0);
  hosts[0].max_layers = 15;
  hosts[0].layers = {0, 15};
  EXPECT_EQ(best_move(hosts, 32), std::nullopt);  // It could not be.
}

TEST(PlacementTest, MovesEndAndNeverTearAWholeModel) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw{seed};
    const int32_t num_layers = draw.whole(2, 48);
    std::vector<Host> hosts(static_cast<size_t>(draw.whole(2, 30)));
    int64_t room = 0;
    for (Host& host : hosts) {
      const int32_t size = draw.whole(1, num_layers);
      const int32_t begin = draw.whole(0, num_layers - size);
      host = serving({begin, begin + size}, draw.speed(), size + draw.whole(0, 4));
      room += std::min(num_layers, host.max_layers);
    }
    int moves = 0;
    bool was_whole = false;
    while (const auto move = best_move(hosts, num_layers)) {
      ASSERT_LT(++moves, 100) << "seed " << seed;
      ASSERT_LE(move->layers.size(), hosts[move->host].max_layers);
      ASSERT_NE(move->layers, hosts[move->host].layers);
      hosts[move->host].layers = {};
      const bool is_whole = num_gaps(flow_of(hosts, num_layers)) == 0;
      EXPECT_TRUE(is_whole || !was_whole) << "torn while it moves, seed " << seed;
      hosts[move->host].layers = move->layers;
      was_whole = num_gaps(flow_of(hosts, num_layers)) == 0;
    }
    EXPECT_EQ(num_gaps(flow_of(hosts, num_layers)) > 0, room < num_layers) << "seed " << seed;
  }
}

TEST(PlacementTest, AnUnsoundSizeOfAModelIsQuick) {
  const std::vector<double> flow(4096, 1.0);
  EXPECT_EQ(best_span(flow, 1, 4096), (Span{0, 4096}));
}

}  // namespace
}  // namespace atl::chain
