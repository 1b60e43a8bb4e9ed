// The search for a plan, held against all that there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "atoll/plan/plan_search.h"
#include "atoll/testing/plan_harness.h"

namespace atl::plan {
namespace {

using testing::ElementsAre;

/// Islands that differ in everything.
std::vector<PlannedIsland> different_islands(size_t count, uint32_t seed, bool with_devices) {
  std::mt19937 random(seed);
  const auto between = [&](double low, double high) {
    const double share = static_cast<double>(random()) / 4294967296.0;
    return low * std::pow(high / low, share);
  };
  std::vector<PlannedIsland> islands;
  for (size_t i = 0; i < count; ++i) {
    PlannedIsland one = island("i" + std::to_string(i), between(1, 1000));
    one.devices = with_devices ? static_cast<int64_t>(between(1, 9)) : 1;
    one.flops_per_s = between(10e12, 80e12);
    one.is_cpu = random() % 4 == 0;
    one.memory_bytes = between(10e9, 100e9);
    one.latency_s = between(1e-3, 0.3);
    islands.push_back(one);
  }
  return islands;
}

TEST(PlanSearch, OneMoreIslandIsNeverAWorseLoss) {
  for (const uint32_t seed : {1U, 2U, 3U, 4U, 5U, 6U}) {
    const bool with_devices = seed % 2 == 0;
    const auto islands = different_islands(8, seed, with_devices);
    double before = 1e9;
    for (size_t count = 4; count <= islands.size(); ++count) {
      const Plan plan =
          plan_of({islands.begin(), islands.begin() + static_cast<std::ptrdiff_t>(count)},
                  {.time_s = 3 * kDay});
      // Islands with other devices round a batch to other rows.
      EXPECT_LE(plan.best().choice.loss, before * (with_devices ? 1.0002 : 1)) << seed << count;
      before = plan.best().choice.loss;
    }
  }
}

/// All groups, one by one: of each way and size what keeps the bounds.
std::vector<PlanChoice> all_choices(Candidates& candidates, size_t num_islands,
                                    const PlanBounds& bounds) {
  std::vector<PlanChoice> found;
  for (size_t bits = 1; bits < (size_t{1} << num_islands); ++bits) {
    std::vector<size_t> islands;
    for (size_t i = 0; i < num_islands; ++i) {
      if ((bits >> i & 1) != 0) islands.push_back(i);
    }
    for (const PlanWay& way : candidates.ways()) {
      if (way.num_islands != islands.size()) continue;
      for (const PlannedSize& size : candidates.ladder()) {
        auto choice = candidates.choice(size, way, islands);
        if (!choice || !choice->fits() || choice->loss > bounds.loss) continue;
        if (choice->computing_s > bounds.time_s) break;
        candidates.time(*choice);
        if (choice->wall_clock_s <= bounds.time_s) found.push_back(std::move(*choice));
        if (std::isfinite(bounds.loss)) break;  // Larger ones take longer.
      }
    }
  }
  return found;
}

TEST(PlanSearch, NoGroupOfAllIsBetter) {
  for (const uint32_t seed : {11U, 12U, 13U, 14U}) {
    const PlanRequest asked =
        request(different_islands(5, seed, /*with_devices=*/false), {.time_s = 1.5 * kDay});
    const PlanLoss loss(std::nullopt);
    Candidates candidates(asked, loss);
    const PlanSearch search(candidates);
    const auto all = all_choices(candidates, 5, {.time_s = 1.5 * kDay});
    const double lowest = std::ranges::min_element(all, {}, &PlanChoice::loss)->loss;
    EXPECT_LE(search.lowest_loss({.time_s = 1.5 * kDay})->loss, lowest) << seed;
    const PlanBounds target{.loss = 1.02 * lowest};
    const auto reaching = all_choices(candidates, 5, target);
    const double soonest =
        std::ranges::min_element(reaching, {}, &PlanChoice::wall_clock_s)->wall_clock_s;
    const auto found = search.soonest(target);
    EXPECT_LE(found->loss, target.loss * (1 + 1e-9));
    EXPECT_LE(found->wall_clock_s, soonest * (1 + 1e-9)) << seed;
  }
}

// 50 Tflop/s behind 1 Mbit/s, two that are well connected, and more and more that are no help.
TEST(PlanSearch, SlowIslandsDoNotHideAGoodPair) {
  std::vector<PlannedIsland> islands = {island("bad", 1), island("f2", 100), island("f3", 90)};
  islands[0].flops_per_s = 50e12;
  const auto best_of = [&] { return plan_of(islands, {.time_s = 3 * kDay}).best().choice; };
  const double loss = best_of().loss;
  for (const char* name : {"s1", "s2", "s3"}) {
    islands.push_back(island(name, 95));
    islands.back().flops_per_s = 2e12;
    EXPECT_THAT(best_of().setup.islands, ElementsAre(1, 2));
    EXPECT_LE(best_of().loss, loss);
  }
}

}  // namespace
}  // namespace atl::plan
