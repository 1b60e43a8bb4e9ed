#include "atoll/laws/optima.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace atl::laws {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// Losses on a parabola over log2(batch) whose minimum is at `best`.
std::vector<laws::Run> sweep(double best, const std::vector<double>& batches) {
  std::vector<laws::Run> runs;
  for (const double batch : batches) {
    const double away = std::log2(batch / best);
    runs.push_back({.params = 1e6, .replicas = 1, .loss = 3 + 0.02 * away * away, .batch = batch});
  }
  return runs;
}

TEST(Optima, TheParabolasMinimum) {
  const Optima optima =
      quadratic_optima(sweep(3000, {1024, 2048, 4096, 8192}), &Run::batch, "batch");
  EXPECT_THAT(optima.refused, IsEmpty());
  ASSERT_EQ(optima.points.size(), 1U);
  EXPECT_NEAR(optima.points[0].value, 3000, 1e-6);
}

TEST(Optima, OnlyTheBestLossAtEachValueCounts) {
  std::vector<laws::Run> runs = sweep(3000, {1024, 2048, 4096, 8192});
  for (laws::Run run : sweep(500, {1024, 2048, 4096, 8192})) {
    run.loss += 1;
    run.lr = 1;
    runs.push_back(run);
  }
  EXPECT_NEAR(quadratic_optima(runs, &Run::batch, "batch").points[0].value, 3000, 1e-6);
}

TEST(Optima, AnOptimumAtTheBorderIsNone) {
  const Optima optima =
      quadratic_optima(sweep(9000, {1024, 2048, 4096, 8192}), &Run::batch, "batch");
  EXPECT_THAT(optima.points, IsEmpty());
  ASSERT_EQ(optima.refused.size(), 1U);
  EXPECT_THAT(optima.refused[0].reason, HasSubstr("8192, is the largest; extend the sweep"));
}

TEST(Optima, TwoValuesAreTooFew) {
  const Optima optima = quadratic_optima(sweep(3000, {2048, 4096}), &Run::batch, "batch");
  ASSERT_EQ(optima.refused.size(), 1U);
  EXPECT_THAT(optima.refused[0].reason, HasSubstr("2 values"));
}

TEST(Optima, OuterRatesOfTheBestRuns) {
  std::vector<laws::Run> runs;
  for (const double n : {1e6, 2e6}) {
    for (const double rate : {0.4, 0.6, 0.8}) {
      const double best = n == 1e6 ? 0.4 : 0.6;
      runs.push_back(
          {.params = n, .replicas = 2, .loss = 3 + std::abs(rate - best), .outer_lr = rate});
    }
  }
  const auto rates = outer_rates(runs);
  ASSERT_EQ(rates.size(), 1U);
  EXPECT_DOUBLE_EQ(rates.at(2).mean, 0.5);
  EXPECT_EQ(rates.at(2).low, 0.4);
  EXPECT_EQ(rates.at(2).high, 0.6);
}

}  // namespace
}  // namespace atl::laws
