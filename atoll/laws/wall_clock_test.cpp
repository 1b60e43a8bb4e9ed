#include "atoll/laws/wall_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::laws {
namespace {

TEST(WallClock, TheAppendixWorkedThrough) {
  TrainingPlan plan{.params = 2.4e9, .tokens = 48e9, .batch_tokens = 1 << 18, .chips = 256};
  EXPECT_DOUBLE_EQ(plan.steps(), 183105.46875);
  EXPECT_DOUBLE_EQ(plan.compute_s(), 9000);
  // By hand, one all-reduce over the low network: 2 * 16 * 2.4e9 / 1e10 * 255/256 + 0.01 s.
  EXPECT_NEAR(communication_s(plan, kNetworks[2]), 183105.46875 * (7.68 * 255 / 256 + 0.01), 1e-3);
  plan.replicas = 1;
  EXPECT_NEAR(communication_s(plan, kNetworks[2]),
              183105.46875 * (7.68 * 255 / 256 + 0.01) * 31 / 30, 1e-3);
  plan.replicas = 2;
  const double inside_s = 0.192 * 254 / 256 + 1e-4;
  EXPECT_NEAR(communication_s(plan, kNetworks[2]),
              183105.46875 * (inside_s + (7.68 * 255 / 256 + 0.01) / 30), 1e-3);
}

TEST(WallClock, FewBitsAreOfOuterGradientsAlone) {
  TrainingPlan plan{.params = 2.4e9, .tokens = 48e9, .batch_tokens = 1 << 18, .chips = 256};
  const auto with_bits = [&](double replicas, double outer_bits) {
    plan.replicas = replicas;
    plan.outer_bits = outer_bits;
    return communication_s(plan, kNetworks[2]);
  };
  EXPECT_EQ(with_bits(0, 4), with_bits(0, 16));
  const double outer_s = 183105.46875 / 30 * 7.68 * 255 / 256;  // In 16 bits, without latency.
  EXPECT_NEAR(with_bits(1, 16) - with_bits(1, 4), 0.75 * outer_s, 1e-3);
  EXPECT_NEAR(with_bits(2, 16) - with_bits(2, 4), 0.75 * outer_s, 1e-3);
}

TEST(WallClock, RefusesPlansThatAreNone) {
  TrainingPlan plan{.params = 1, .tokens = 10, .batch_tokens = 20, .chips = 1};
  EXPECT_THAT(message_of<UsageError>([&] { check(plan); }), testing::HasSubstr("--batch-tokens"));
  plan.batch_tokens = 5;
  plan.replicas = 2;
  EXPECT_THAT(message_of<UsageError>([&] { check(plan); }), testing::HasSubstr("--chips"));
}

}  // namespace
}  // namespace atl::laws
