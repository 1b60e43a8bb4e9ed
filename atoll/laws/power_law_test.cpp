#include "atoll/laws/power_law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/laws/fit.h"
#include "atoll/laws/published.h"

namespace atl::laws {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<Point> grid(const std::vector<double>& sizes, const std::vector<double>& replicas) {
  std::vector<Point> points;
  for (const double m : replicas) {
    for (const double n : sizes) {
      points.push_back({n, m, 20 * std::pow(n, -0.1) * std::pow(std::max(m, 1.0), 0.01)});
    }
  }
  return points;
}

TEST(PowerLaw, FindsTheLawThatMadeThePoints) {
  const PowerLaws laws = fit_power_laws(grid({1e6, 3e6, 1e7}, {0, 1, 4}), "loss");
  EXPECT_THAT(laws.refused, IsEmpty());
  ASSERT_EQ(laws.independent.size(), 3U);
  EXPECT_NEAR(laws.of(1)->A(), 20, 1e-9);
  EXPECT_NEAR(laws.of(1)->alpha(), -0.1, 1e-12);
  ASSERT_TRUE(laws.joint);
  EXPECT_NEAR(laws.joint->A(), 20, 1e-9);
  EXPECT_NEAR(laws.joint->beta(), 0.01, 1e-12);
  EXPECT_NEAR(laws.joint->predict(1e8, 8), 20 * std::pow(1e8, -0.1) * std::pow(8, 0.01), 1e-9);
}

// Scaling Laws for DiLoCo, Table 7, from Table 4.
TEST(PowerLaw, FitsThePublishedTable) {
  const PowerLaws laws = fit_power_laws(loss_points(published_losses()), "loss");
  struct Row {
    double replicas, A, alpha;
  };
  for (const Row& row : {Row{0, 18.129, -0.0953}, Row{1, 18.363, -0.0961}, Row{2, 18.768, -0.0969},
                         Row{4, 19.762, -0.0992}, Row{8, 21.051, -0.1018}}) {
    const PowerLaw* law = laws.of(row.replicas);
    ASSERT_NE(law, nullptr);
    EXPECT_NEAR(law->A() / row.A, 1, 0.002) << row.replicas;
    EXPECT_NEAR(law->alpha(), row.alpha, 2e-4) << row.replicas;
  }
}

TEST(PowerLaw, OneNumberOfReplicasHasNoJointLaw) {
  const PowerLaws laws = fit_power_laws(grid({1e6, 3e6, 1e7}, {0, 2}), "loss");
  EXPECT_FALSE(laws.joint);
  EXPECT_EQ(laws.independent.size(), 2U);
  ASSERT_EQ(laws.refused.size(), 1U);
  EXPECT_EQ(laws.refused[0].what, "joint law of loss");
  EXPECT_THAT(laws.refused[0].reason, HasSubstr("all rows have 2 replicas"));
  const PowerLaws none = fit_power_laws(grid({1e6, 3e6, 1e7}, {0}), "loss");
  EXPECT_THAT(none.refused[0].reason, HasSubstr("all rows are data-parallel"));
}

TEST(PowerLaw, TwoSizesAreTooFew) {
  const PowerLaws laws = fit_power_laws(grid({1e6, 3e6}, {1, 2}), "loss");
  EXPECT_THAT(laws.independent, IsEmpty());
  EXPECT_FALSE(laws.joint);
  EXPECT_EQ(laws.refused.size(), 3U);
  EXPECT_THAT(laws.refused[0].reason, HasSubstr("2 sizes"));
}

TEST(PowerLaw, SizesThatChangeWithReplicasGiveNoJointLaw) {
  std::vector<Point> points;
  for (const double m : {1.0, 2.0, 4.0}) points.push_back({1e6 * m, m, 3 / m});
  EXPECT_FALSE(fit_power_laws(points, "loss").joint);
}

TEST(LeaveOneOut, MissesByWhatTheLargestSizeIsOff) {
  std::vector<Point> points = grid({1e6, 3e6, 1e7, 3e7}, {0, 1, 2});
  for (Point& point : points) {
    if (point.params == 3e7) point.value *= std::exp(point.replicas == 1 ? 0.02 : -0.03);
  }
  const LeaveOneOut left = leave_one_out(points);
  EXPECT_EQ(left.params, 3e7);
  ASSERT_EQ(left.independent.size(), 2U);  // Not of data-parallel.
  EXPECT_NEAR(left.independent.at(1), 0.02, 1e-12);
  EXPECT_NEAR(left.independent.at(2), 0.03, 1e-12);
  EXPECT_NEAR(left.joint.at(2), 0.03, 1e-12);
}

TEST(LeaveOneOut, NeedsASizeToSpare) {
  const LeaveOneOut left = leave_one_out(grid({1e6, 3e6, 1e7}, {1, 2}));
  EXPECT_THAT(left.independent, IsEmpty());
  ASSERT_EQ(left.refused.size(), 1U);
  EXPECT_THAT(left.refused[0].reason, HasSubstr("have 3 sizes, and it needs 4"));
}

TEST(LeaveOneOut, DataParallelHasItsOwnAtItsOwnLargestSize) {
  std::vector<Point> points = grid({1e6, 3e6, 1e7, 3e7}, {1, 2});
  const LeaveOneOut without = leave_one_out(points);
  EXPECT_FALSE(without.data_parallel);
  for (Point& point : grid({1e6, 3e6, 1e7, 3e7, 1e8}, {0})) {
    if (point.params == 1e8) point.value *= std::exp(0.05);
    points.push_back(point);
  }
  const LeaveOneOut left = leave_one_out(points);
  ASSERT_TRUE(left.data_parallel);
  EXPECT_EQ(left.data_parallel->params, 1e8);
  EXPECT_NEAR(left.data_parallel->value, 0.05, 1e-12);
  EXPECT_EQ(left.params, without.params);
  EXPECT_EQ(left.independent, without.independent);
  EXPECT_EQ(left.joint, without.joint);
}

TEST(LeaveOneOut, DataParallelAloneLacksNothing) {
  const LeaveOneOut left = leave_one_out(grid({1e6, 3e6, 1e7, 3e7}, {0}));
  EXPECT_TRUE(left.data_parallel);
  EXPECT_THAT(left.refused, IsEmpty());
  const LeaveOneOut few = leave_one_out(grid({1e6, 3e6, 1e7}, {0}));
  EXPECT_FALSE(few.data_parallel);
  ASSERT_EQ(few.refused.size(), 1U);
  EXPECT_THAT(few.refused[0].what, HasSubstr("data-parallel"));
  const LeaveOneOut close = leave_one_out(grid({1e9, 1e9 + 1, 1e9 + 2, 2e9}, {0}));
  ASSERT_EQ(close.refused.size(), 1U);
  EXPECT_THAT(close.refused[0].reason, HasSubstr("too close"));
}

TEST(GrowthWarnings, NameTheLawsThatGetWorseWithSize) {
  std::vector<Point> points = grid({1e6, 3e6, 1e7}, {0, 1});
  for (Point& point : points) {
    if (point.replicas == 1) point.value = std::pow(point.params, 0.02);
  }
  const auto warnings = growth_warnings(fit_power_laws(points, "loss"));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("1 replica: the loss grows with size (alpha +0.02)"));
}

}  // namespace
}  // namespace atl::laws
