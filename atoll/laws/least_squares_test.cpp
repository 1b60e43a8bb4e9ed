#include "atoll/laws/least_squares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace atl::laws {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(LeastSquares, SolvesWhatIsExact) {
  const LeastSquares design({1, 0, 1, 1, 1, 2, 1, 5}, 2);
  ASSERT_TRUE(design.full_rank());
  EXPECT_THAT(design.solve(std::vector<double>{3, 5, 7, 13}),
              ElementsAre(DoubleNear(3, 1e-12), DoubleNear(2, 1e-12)));
}

TEST(LeastSquares, KnowsItsUncertainty) {
  // A line through x = -1, 0, 1: variance 1/3 at the middle, 1/3 + x^2/2 elsewhere.
  const LeastSquares design({1, -1, 1, 0, 1, 1}, 2);
  EXPECT_NEAR(design.variance_at(std::vector<double>{1, 0}), 1.0 / 3, 1e-12);
  EXPECT_NEAR(design.variance_at(std::vector<double>{1, 2}), 1.0 / 3 + 2, 1e-12);
  EXPECT_NEAR(design.leverage(0), 1.0 / 3 + 0.5, 1e-12);
}

TEST(LeastSquares, SeesColumnsThatDependOnOthers) {
  EXPECT_FALSE(LeastSquares({1, 2, 1, 2, 1, 2}, 2).full_rank());
  EXPECT_FALSE(LeastSquares({1, 2}, 2).full_rank());
  // Logs of sizes a per cent apart still count as different.
  EXPECT_TRUE(LeastSquares({1, 20.00, 1, 20.01, 1, 20.02}, 2).full_rank());
}

TEST(LeastSquares, StudentT) {  // Printed tables.
  EXPECT_NEAR(student_t(1, 0.95), 12.706, 1e-3);
  EXPECT_NEAR(student_t(2, 0.95), 4.303, 1e-3);
  EXPECT_NEAR(student_t(5, 0.95), 2.571, 1e-3);
  EXPECT_NEAR(student_t(25, 0.99), 2.787, 1e-3);
  EXPECT_EQ(student_t(0, 0.95), std::numeric_limits<double>::infinity());
}

TEST(LeastSquares, Quantiles) {
  std::vector<double> values = {5, 1, 3, 2, 4};
  EXPECT_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0.125), 1.5);
  EXPECT_EQ(quantile(values, 1), 5);
}

TEST(LogLinearFit, PredictionIntervalIsThatOfTheTextbook) {
  // ln y = x + noise at x = -1, 0, 1 with residuals (1, -2, 1)/6 of the line: s^2 = 1/6.
  const std::vector<double> y = {std::exp(-1 + 1.0 / 6), std::exp(-2.0 / 6), std::exp(1 + 1.0 / 6)};
  const LogLinearFit fit(LeastSquares({1, -1, 1, 0, 1, 1}, 2), y);
  const Interval interval = fit.interval(std::vector<double>{1, 0}, 0.95);
  EXPECT_NEAR(std::log(interval.value), 0, 1e-12);
  EXPECT_NEAR(std::log(interval.high), 12.706 * std::sqrt(1.0 / 6 * (1 + 1.0 / 3)), 1e-3);
  EXPECT_NEAR(std::log(interval.low), -std::log(interval.high), 1e-12);
}

}  // namespace
}  // namespace atl::laws
