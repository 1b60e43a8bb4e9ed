// The outer step on the host and on a device: the same bits.
#include "atoll/sync/outer_state.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include "atoll/sync/host.h"
#include "atoll/testing_torch/stand_in_device.h"

namespace atl::sync {
namespace {

constexpr int64_t kSize = 10'007;

at::Tensor values(double seed) { return at::arange(kSize, at::kFloat).mul(seed).sin().mul(3); }

TEST(OuterStateTest, AStepOnADeviceMakesTheSameBits) {
  for (const method::OuterRule rule : {method::OuterRule::kSgd, method::OuterRule::kHeavyBall,
                                       method::OuterRule::kNesterov, method::OuterRule::kAdam}) {
    const method::OuterOptimizer optimizer{
        .rule = rule, .lr = 0.7F, .momentum = 0.9F, .beta2 = 0.97F};
    OuterState host(optimizer, kSize);
    OuterState next_host(optimizer, kSize);
    OuterState device(optimizer, kSize, model::stand_in::a_device());
    OuterState next_device(optimizer, kSize, model::stand_in::a_device());
    host.theta_P.copy_(values(0.3));
    device.theta_P.copy_(host.theta_P);
    EXPECT_EQ(device.digest(), host.digest());
    for (int64_t number = 1; number < 6; ++number) {
      const at::Tensor mean_P = values(0.1 * static_cast<double>(number));
      host.step(optimizer, number, span_of(mean_P), next_host);
      device.step(optimizer, number, span_of(mean_P), next_device);
      ASSERT_EQ(next_device.digest(), next_host.digest())
          << "rule " << static_cast<int>(rule) << ", step " << number;
      EXPECT_NE(next_host.digest(), host.digest());
      host.copy_(next_host);
      device.copy_(next_device);
      ASSERT_EQ(host.digest(), next_host.digest()) << "all of it is copied";
    }
  }
}

}  // namespace
}  // namespace atl::sync
