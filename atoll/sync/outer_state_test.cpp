// The outer step on the host and on a device: the same bits.
#include "atoll/sync/outer_state.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "atoll/base/machine_memory.h"
#include "atoll/model/spilled_tensor.h"
#include "atoll/sync/host.h"
#include "atoll/testing/temporary_folder.h"
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
    const auto on_host = [] { return at::zeros({kSize}); };
    const auto on_device = [] { return at::zeros({kSize}, model::stand_in::a_device()); };
    OuterState host(optimizer, on_host);
    OuterState next_host(optimizer, on_host);
    OuterState device(optimizer, on_device);
    OuterState next_device(optimizer, on_device);
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

/// As the optimiser makes it of all at once; of what is spilled little stays in memory.
TEST(OuterStateTest, AStepGoesInPieces) {
  constexpr int64_t kMany = (int64_t{1} << 23) + 3;
  const TestFolder folder;
  const method::OuterOptimizer optimizer{
      .rule = method::OuterRule::kNesterov, .lr = 0.7F, .momentum = 0.9F};
  const at::Tensor mean_P = at::arange(kMany, at::kFloat).sin();
  OuterState whole(optimizer, [] { return at::zeros({kMany}); });
  whole.theta_P.copy_(mean_P.cos());
  whole.momentum_P.copy_(mean_P.mul(3));
  const auto on_disk = [&] { return model::spilled_tensor(folder, kMany); };
  OuterState spilled(optimizer, on_disk);
  spilled.copy_(whole);
  spilled.rest();
  optimizer.step(1, span_of(mean_P), {span_of(whole.theta_P), span_of(whole.momentum_P), {}},
                 {span_of(whole.theta_P), span_of(whole.momentum_P), {}});
  OuterState next(optimizer, on_disk);
  const double before = resident_memory_bytes();
  spilled.step(optimizer, 1, span_of(mean_P), next);
  EXPECT_LT(resident_memory_bytes(), before + 16e6) << "of 134 MB";
  EXPECT_EQ(next.digest(), whole.digest());
  spilled.step(optimizer, 1, span_of(mean_P), spilled);
  EXPECT_EQ(spilled.digest(), whole.digest()) << "in place";
}

}  // namespace
}  // namespace atl::sync
