#include "atoll/train/options.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "atoll/train/inner_optimizer.h"

namespace atl::train {
namespace {

TEST(LearningRateTest, WarmsUpLinearlyThenFollowsTheCosineToItsEnd) {
  const TrainOptions options{.steps = 110, .lr = 1.0, .min_lr_ratio = 0.1, .warmup_steps = 10};
  EXPECT_NEAR(learning_rate(options, 0), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(options, 9), 1.0, 1e-12);
  EXPECT_NEAR(learning_rate(options, 59), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(options, 109), 0.1, 1e-12);
}

TEST(LearningRateTest, ByDefaultWarmsUpForATwentieth) {
  const TrainOptions options{.steps = 100, .lr = 1.0, .min_lr_ratio = 0.0};
  EXPECT_NEAR(learning_rate(options, 4), 1.0, 1e-12);
  EXPECT_NEAR(learning_rate(options, 5), 0.5 * (1 + std::cos(std::numbers::pi / 95)), 1e-12);
  EXPECT_NEAR(learning_rate(options, 99), 0.0, 1e-12);
}

TEST(LearningRateTest, ConstantStaysAfterTheWarmUp) {
  const TrainOptions options{.steps = 100, .lr = 2.0, .warmup_steps = 0, .schedule = "constant"};
  EXPECT_EQ(learning_rate(options, 0), 2.0);
  EXPECT_EQ(learning_rate(options, 99), 2.0);
}

TEST(WeightDecayTest, InverseStepsIsOneOverTheNumberOfSteps) {
  EXPECT_EQ(weight_decay({.steps = 400, .weight_decay = 0.3}), 0.3);
  EXPECT_EQ(weight_decay({.steps = 400, .weight_decay_mode = "inverse_steps"}), 1.0 / 400);
}

TEST(InnerOptimizerTest, AdamWFirstStepIsTheSignAndDecaysOnlyMatrices) {
  const at::Tensor values_P = at::ones({6}, at::kFloat);
  const at::Tensor gradients_P = at::ones({6}, at::kFloat);
  auto optimizer = make_inner_optimizer(
      {}, {.values_P = values_P, .gradients_P = gradients_P, .decayed = {{2, 4}}});
  optimizer->step(/*lr=*/0.1, /*weight_decay=*/0.5);
  // Bias correction makes the first update lr * sign(g); decay subtracts lr * 0.5 * theta.
  const float* values = values_P.const_data_ptr<float>();
  for (const int i : {0, 1, 4, 5}) EXPECT_NEAR(values[i], 0.9, 1e-5);
  for (const int i : {2, 3}) EXPECT_NEAR(values[i], 0.85, 1e-5);
  EXPECT_EQ(optimizer->num_updates(), 1);
  EXPECT_EQ(optimizer->state().size(), 2U);
}

TEST(InnerOptimizerTest, ClipScalesToTheNormAndReportsTheNormBefore) {
  const at::Tensor gradients_P = at::ones({4}, at::kFloat).mul(3);
  EXPECT_NEAR(clip_gradient(gradients_P, 1.0), 6.0, 1e-6);
  EXPECT_TRUE(at::allclose(gradients_P, at::ones({4}, at::kFloat).mul(0.5), 0, 1e-5));
  EXPECT_NEAR(clip_gradient(gradients_P, 0), 1.0, 1e-5);
  EXPECT_TRUE(at::allclose(gradients_P, at::ones({4}, at::kFloat).mul(0.5), 0, 1e-5));
}

}  // namespace
}  // namespace atl::train
