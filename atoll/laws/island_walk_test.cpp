#include "atoll/laws/island_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/random.h"

namespace atl::laws {
namespace {

/// Every step walked, none skipped.
Simulated walked(const Workload& work, double gbps) {
  IslandWalk walk(work, gbps);
  double computed_s = 0;
  for (int64_t step = 0; step < work.steps; ++step) {
    computed_s += walk.run_step() * (3 * work.layers - 1) * work.unit_s();
  }
  double capacity = 0;
  for (const SimulatedIsland& island : work.islands) capacity += island.speed;
  return {.utilisation = computed_s / (capacity * walk.now_s()),
          .steps = work.steps,
          .seconds = walk.now_s()};
}

/// What a seed makes of everything that may differ.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}

  double between(double low, double high) {
    return low + (high - low) * random_uniform(seed_, 0, num_drawn_++);
  }
  int whole(int low, int high) { return static_cast<int>(between(low, high + 0.999999)); }
  double scale(double low, double high) { return std::exp(between(std::log(low), std::log(high))); }

 private:
  uint64_t seed_;
  uint64_t num_drawn_ = 0;
};

Workload drawn_workload(uint64_t seed) {
  Draw draw(seed);
  Workload work{.params = 1e9, .layers = draw.whole(1, 8), .step_s = draw.scale(1e-3, 10)};
  work.method = static_cast<SimulatedMethod>(draw.whole(0, 2));
  work.sync_every = work.method == SimulatedMethod::kDataParallel ? 1 : draw.whole(2, 60);
  if (work.method == SimulatedMethod::kStreamingDiloco) {
    work.fragments = draw.whole(1, std::min(work.layers, work.sync_every - 1));
    work.delay = draw.whole(0, work.sync_every - 1);
  }
  work.islands.resize(static_cast<size_t>(draw.whole(1, 5)));
  for (SimulatedIsland& island : work.islands) {
    island.latency_s = draw.whole(0, 1) * draw.scale(1e-3, 3) * work.step_s;
    if (draw.whole(0, 1) == 0) continue;
    island.speed = draw.between(0.3, 2);
    island.up = draw.between(0.1, 1.5);
  }
  work.steps = draw.whole(1000, 40'000);
  const double hours = static_cast<double>(work.steps) * work.step_s / 3600;
  work.failures = {.mean_hours = hours * draw.scale(0.003, 0.5),
                   .recovery_s = 3600 * hours * draw.scale(0.0003, 0.1),
                   .detection_s = draw.between(0, 30) * work.step_s,
                   .seed = seed};
  return work;
}

TEST(IslandWalk, SkippingIsWalking) {
  double furthest = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Workload work = drawn_workload(seed);
    // From lines that take all time to such that take none.
    const double period_s = work.step_s * work.sync_every;
    const double gbps = Draw(seed + 1'000'000).scale(0.1, 100) * 16 / period_s;
    const Simulated plain = walked(work, gbps);
    const Simulated skipped = simulate(work, gbps);
    EXPECT_EQ(skipped.steps, plain.steps);
    EXPECT_NEAR(skipped.seconds, plain.seconds, 1e-9 * plain.seconds) << "seed " << seed;
    EXPECT_NEAR(skipped.utilisation, plain.utilisation, 1e-9 * plain.utilisation)
        << "seed " << seed;
    furthest = std::max(furthest, std::abs(skipped.utilisation / plain.utilisation - 1));
  }
  RecordProperty("furthest", std::to_string(1e12 * furthest) + "e-12");
}

TEST(IslandWalk, AStateRepeatsOnlyWhereAllOfItDoes) {
  const WalkState state{.clock_s = 5, .num_changes = 2, .ahead_s = {0, 3}, .needed_in = {1}};
  WalkState later = state;
  later.clock_s = 15;
  EXPECT_TRUE(repeats(state, later, 10));
  later.ahead_s[1] = 3 + 1e-12;
  EXPECT_TRUE(repeats(state, later, 10));
  later.ahead_s[1] = 3 + 1e-6;  // A line that falls behind.
  EXPECT_FALSE(repeats(state, later, 10));
  later = state;
  later.num_changes = 3;
  EXPECT_FALSE(repeats(state, later, 10));
  later = state;
  later.needed_in = {2};
  EXPECT_FALSE(repeats(state, later, 10));
  EXPECT_FALSE(repeats(state, state, 0));
}

TEST(IslandWalk, ASkipBringsFailuresNearer) {
  const Workload work{.params = 1e9,
                      .layers = 2,
                      .step_s = 1,
                      .method = SimulatedMethod::kDataParallel,
                      .sync_every = 1,
                      .failures = {.mean_hours = 1}};
  IslandWalk walk(work, 1e6);
  walk.run_step();
  const double now_s = walk.now_s();
  const double before = walk.spans_until_change(1);
  ASSERT_GT(before, 20);
  walk.skip(10);
  EXPECT_NEAR(walk.now_s(), now_s + 10, 1e-12);
  EXPECT_NEAR(walk.spans_until_change(1), before - 10, 1);
  while (walk.spans_until_change(1) >= 1) walk.run_step();
  EXPECT_EQ(walk.num_failures(), 0);
  walk.run_step();
  walk.run_step();
  EXPECT_EQ(walk.num_failures(), 1);
}

}  // namespace
}  // namespace atl::laws
