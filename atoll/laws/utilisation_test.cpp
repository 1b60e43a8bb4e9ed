#include "atoll/laws/utilisation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/testing/temporary_folder.h"

namespace atl::laws {
namespace {

using testing::HasSubstr;

Workload paper_1b(SimulatedMethod method) {
  return {.params = 1e9,
          .layers = 24,
          .step_s = 0.1,
          .method = method,
          .sync_every = method == SimulatedMethod::kDataParallel ? 1 : 100,
          .fragments = method == SimulatedMethod::kStreamingDiloco ? 8 : 1,
          .bits = 16 * kPaperCalibration};
}

std::array<double, kGridSize> utilisation_on_grid(const Workload& work) {
  std::array<double, kGridSize> grid;
  for (int k = 0; k < kGridSize; ++k)
    grid[static_cast<size_t>(k)] = utilisation(work, grid_gbps(k));
  return grid;
}

// Streaming DiLoCo (arXiv 2501.18512), Table 4, the rows of 1B, as indices on the paper's grid.
TEST(Utilisation, ThePapersRowOf1B) {
  Workload overlapped = paper_1b(SimulatedMethod::kStreamingDiloco);
  overlapped.delay = 1;
  Workload four_bits = overlapped;
  four_bits.bits = 4 * kPaperCalibration;
  const std::vector<std::pair<Workload, std::vector<int>>> rows = {
      {paper_1b(SimulatedMethod::kDataParallel), {36, 39, 40, 41, 46}},
      {paper_1b(SimulatedMethod::kDiloco), {14, 22, 26, 29, 36}},
      {paper_1b(SimulatedMethod::kStreamingDiloco), {14, 21, 24, 27, 30}},
      {overlapped, {14, 20, 22, 24, 25}},
      {four_bits, {7, 12, 15, 16, 18}}};
  const std::vector<double> targets = {0.5, 0.8, 0.9, 0.95, 0.99};
  int exact = 0;
  for (const auto& [work, indices] : rows) {
    const auto grid = utilisation_on_grid(work);
    for (size_t i = 0; i < targets.size(); ++i) {
      const auto index = grid_index(grid, targets[i]);
      ASSERT_TRUE(index);
      EXPECT_LE(std::abs(*index - indices[i]), 1);
      exact += *index == indices[i] ? 1 : 0;
    }
  }
  EXPECT_GE(exact, 23);
}

TEST(Utilisation, ALineWithoutEndKeepsAllComputing) {
  for (const SimulatedMethod method : {SimulatedMethod::kDataParallel, SimulatedMethod::kDiloco,
                                       SimulatedMethod::kStreamingDiloco}) {
    EXPECT_NEAR(utilisation(paper_1b(method), 1e9), 1, 1e-6);
  }
}

TEST(Utilisation, ASlowLineTakesAllTime) {
  // Ten exchanges of 13.35 Gbit take 1000 times as long as ten periods' computing.
  const double share = utilisation(paper_1b(SimulatedMethod::kDiloco), 1e-3);
  const double wire_s = 10 * 13.35e9 / 1e6;
  const double computing_s = 1001 * 0.1 * 71 / 72;
  EXPECT_NEAR(share, computing_s / (computing_s + wire_s), 1e-5);
}

TEST(Utilisation, OneFragmentWithoutDelayIsDilocoButForItsSlot) {
  Workload streaming = paper_1b(SimulatedMethod::kStreamingDiloco);
  streaming.fragments = 1;
  EXPECT_NEAR(utilisation(streaming, 5), utilisation(paper_1b(SimulatedMethod::kDiloco), 5), 1e-9);
}

TEST(Utilisation, EqualIslandsAreAsOne) {
  Workload work = paper_1b(SimulatedMethod::kStreamingDiloco);
  const double one = utilisation(work, 3);
  work.islands.resize(4);
  EXPECT_NEAR(utilisation(work, 3), one, 1e-12);
}

TEST(Utilisation, TheSlowerDirectionDecides) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  const double tenth = utilisation(work, 0.5);
  work.islands = {{.up = 0.1}, {}};
  EXPECT_NEAR(utilisation(work, 5), tenth, 1e-12);
  work.islands = {{}, {.down = 0.1}};
  EXPECT_NEAR(utilisation(work, 5), tenth, 1e-12);
}

TEST(Utilisation, LatencyCostsOneEachPeriodUnlessHidden) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.islands = {{.latency_s = 0.5}};
  const double computing_s = 1001 * 0.1 * 71 / 72;
  // The first layer's reduction ends last; nothing else hides its latency.
  EXPECT_NEAR(utilisation(work, 1e9), computing_s / (computing_s + 10 * 0.5), 1e-5);
  Workload hidden = paper_1b(SimulatedMethod::kStreamingDiloco);
  hidden.delay = 10;
  hidden.islands = work.islands;
  EXPECT_NEAR(utilisation(hidden, 1e9), 1, 1e-6);
}

TEST(Utilisation, AFastIslandWaitsForASlowOne) {
  Workload work = paper_1b(SimulatedMethod::kDataParallel);
  work.islands = {{.speed = 1}, {.speed = 2}};
  // Both do the same work; the fast one could have done twice as much.
  EXPECT_NEAR(utilisation(work, 1e9), 2.0 / 3, 1e-6);
}

TEST(Utilisation, FailuresCostWhatIsLost) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.islands.resize(4);
  work.steps = 100'000;  // 2.8 hours.
  work.failures = {.mean_hours = 0.5, .recovery_s = 90, .detection_s = 5, .seed = 3};
  const double share = utilisation(work, 1e9);
  // Away for 90 of 1890 seconds; the others wait 5 for each of four.
  EXPECT_NEAR(share, 1 - 90.0 / 1890, 0.03);
  EXPECT_EQ(share, utilisation(work, 1e9));
  work.failures.recovery_s = 900;
  EXPECT_LT(utilisation(work, 1e9), share);
}

TEST(Utilisation, AllIslandsAwayIsWaitedOut) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.steps = 20'000;
  work.failures = {.mean_hours = 0.1, .recovery_s = 600, .detection_s = 0, .seed = 1};
  EXPECT_NEAR(utilisation(work, 1e9), 360.0 / 960, 0.15);
}

TEST(Utilisation, FailuresWithoutStepsAreAsManyAsAMeanNeeds) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.islands.resize(2);
  work.failures = {.mean_hours = 1};
  const Simulated simulated = simulate(work, 100);
  EXPECT_NEAR(simulated.expected_failures, kFailures, 0.01 * kFailures);
  EXPECT_EQ(simulated.steps % work.sync_every, 1);
  // Away for 600 of 4200 seconds, which the other waits 10 of.
  EXPECT_NEAR(simulated.utilisation, 0.99 * 3600 / 4200, 0.02);
  work.steps = simulated.steps;
  EXPECT_NEAR(utilisation(work, 100), simulated.utilisation, 1e-9);
}

TEST(Utilisation, AnotherSeedMovesWhatFailuresCostByThreePercent) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.islands.resize(2);
  work.failures = {.mean_hours = 1};
  constexpr int kSeeds = 40;
  double sum = 0;
  double squares = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    work.failures.seed = static_cast<uint64_t>(seed);
    const double cost = 1 - utilisation(work, 100);
    sum += cost;
    squares += cost * cost;
  }
  const double mean = sum / kSeeds;
  const double deviation = std::sqrt(squares / kSeeds - mean * mean);
  RecordProperty("deviation", std::to_string(deviation / mean));
  EXPECT_LT(deviation, 1.5 * mean / std::sqrt(kFailures));
}

TEST(Utilisation, FailuresThatAreRareCostNoWork) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.islands.resize(2);
  work.failures = {.mean_hours = 1};
  work.steps = 1'000'000'000'000;
  EXPECT_THAT(message_of<UsageError>([&] { simulate(work, 100); }),
              HasSubstr("give fewer --steps"));
  work.failures.mean_hours = 1e6;
  EXPECT_EQ(simulate(work, 100).steps, work.steps);
}

TEST(Utilisation, LongPeriodsWithFailuresEndWithTheWork) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.islands.resize(2);
  work.sync_every = 200'000;
  work.failures = {.mean_hours = 1};
  check(work);
  const Simulated some = simulate(work, 100);  // Fewer failures than are wanted.
  EXPECT_EQ(some.steps % work.sync_every, 1);
  EXPECT_LT(some.steps, 10 * work.sync_every);
  work.sync_every = 10'000'000;
  EXPECT_THAT(message_of<UsageError>([&] { check(work); }), HasSubstr("a shorter --sync-every"));
}

TEST(Utilisation, FailuresThatNeverComeCostNothing) {
  Workload work = paper_1b(SimulatedMethod::kDiloco);
  work.islands.resize(3);
  work.steps = 100'001;
  const double without = utilisation(work, 10);
  work.steps = 0;
  work.failures = {.mean_hours = 1e9};
  const Simulated simulated = simulate(work, 10);
  EXPECT_GT(simulated.steps, 1'000'000'000'000);
  EXPECT_NEAR(simulated.utilisation, without, 1e-5);
}

TEST(Utilisation, TheGridIsThePapers) {
  EXPECT_DOUBLE_EQ(grid_gbps(0), 0.1);
  EXPECT_DOUBLE_EQ(grid_gbps(49), 1000);
  EXPECT_NEAR(grid_gbps(36), 86.85, 0.005);
  std::array<double, kGridSize> grid{};
  EXPECT_EQ(grid_index(grid, 0.5), std::nullopt);
  grid[7] = 0.5;
  EXPECT_EQ(grid_index(grid, 0.5), 7);
}

TEST(Utilisation, RefusesWhatDoesNotFitTogether) {
  const auto refusal = [](auto change) {
    Workload work = paper_1b(SimulatedMethod::kStreamingDiloco);
    change(work);
    return message_of<UsageError>([&] { check(work); });
  };
  EXPECT_EQ(refusal([](Workload&) {}), "");
  EXPECT_THAT(refusal([](Workload& w) { w.fragments = 25; }), HasSubstr("layers, 24"));
  EXPECT_THAT(refusal([](Workload& w) { w.sync_every = 8; }), HasSubstr("--sync-every 9"));
  EXPECT_THAT(refusal([](Workload& w) { w.delay = 100; }), HasSubstr("--delay"));
  EXPECT_THAT(refusal([](Workload& w) { w.step_s = 0; }), HasSubstr("--step-time"));
  EXPECT_THAT(refusal([](Workload& w) { w.params = NAN; }), HasSubstr("--params"));
  EXPECT_THAT(refusal([](Workload& w) { w.islands[0].up = 0; }), HasSubstr("up"));
  EXPECT_THAT(refusal([](Workload& w) { w.steps = 1'000'000'000; }), HasSubstr("too many"));
  EXPECT_THAT(refusal([](Workload& w) { w.steps = 100; }), HasSubstr("give 101 or more"));
  EXPECT_EQ(refusal([](Workload& w) { w.steps = 101; }), "");
  EXPECT_THAT(refusal([](Workload& w) {
                w.delay = 9;
                w.steps = 109;
              }),
              HasSubstr("give 110 or more"));
  EXPECT_THAT(refusal([](Workload& w) { w.method = SimulatedMethod::kDiloco; }),
              HasSubstr("--fragments"));
  EXPECT_THAT(refusal([](Workload& w) { w.method = SimulatedMethod::kDataParallel; }),
              HasSubstr("--sync-every"));
}

}  // namespace
}  // namespace atl::laws
