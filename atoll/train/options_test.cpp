#include "atoll/method/train_options.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "atoll/base/machine_memory.h"
#include "atoll/model/page_tensor.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/train/muon.h"

namespace atl::train {
namespace {

TEST(LearningRateTest, WarmsUpLinearlyThenFollowsTheCosineToItsEnd) {
  const method::TrainOptions options{
      .steps = 110, .lr = 1.0, .min_lr_ratio = 0.1, .warmup_steps = 10};
  EXPECT_NEAR(method::learning_rate(options, 0), 0.1, 1e-12);
  EXPECT_NEAR(method::learning_rate(options, 9), 1.0, 1e-12);
  EXPECT_NEAR(method::learning_rate(options, 59), 0.55, 1e-12);
  EXPECT_NEAR(method::learning_rate(options, 109), 0.1, 1e-12);
}

TEST(LearningRateTest, ByDefaultWarmsUpForATwentieth) {
  const method::TrainOptions options{.steps = 100, .lr = 1.0, .min_lr_ratio = 0.0};
  EXPECT_NEAR(method::learning_rate(options, 4), 1.0, 1e-12);
  EXPECT_NEAR(method::learning_rate(options, 5), 0.5 * (1 + std::cos(std::numbers::pi / 95)),
              1e-12);
  EXPECT_NEAR(method::learning_rate(options, 99), 0.0, 1e-12);
}

TEST(LearningRateTest, ConstantStaysAfterTheWarmUp) {
  const method::TrainOptions options{
      .steps = 100, .lr = 2.0, .warmup_steps = 0, .schedule = "constant"};
  EXPECT_EQ(method::learning_rate(options, 0), 2.0);
  EXPECT_EQ(method::learning_rate(options, 99), 2.0);
}

TEST(LearningRateTest, WhoJoinsInTheMiddleBeginsWithLess) {
  const method::TrainOptions options{.rejoin_warmup = 4};
  EXPECT_EQ(method::rejoin_factor(options, 0), 0.25);
  EXPECT_EQ(method::rejoin_factor(options, 2), 0.75);
  EXPECT_EQ(method::rejoin_factor(options, 3), 1);
  EXPECT_EQ(method::rejoin_factor(options, 1000), 1);
  EXPECT_EQ(method::rejoin_factor({.rejoin_warmup = 0}, 0), 1);
}

TEST(WeightDecayTest, InverseStepsIsOneOverTheNumberOfSteps) {
  EXPECT_EQ(method::weight_decay({.steps = 400, .weight_decay = 0.3}), 0.3);
  EXPECT_EQ(method::weight_decay({.steps = 400, .weight_decay_mode = "inverse_steps"}), 1.0 / 400);
}

TEST(InnerOptimizerTest, AdamWFirstStepIsTheSignAndDecaysOnlyMatrices) {
  const at::Tensor values_P = at::ones({6}, at::kFloat);
  const at::Tensor gradients_P = at::ones({6}, at::kFloat);
  auto optimizer = make_inner_optimizer(
      {}, {.values_P = values_P, .gradients_P = gradients_P, .decayed = {{2, 4}}});
  optimizer->step({.lr = 0.1, .weight_decay = 0.5});
  // Bias correction makes the first update lr * sign(g); decay subtracts lr * 0.5 * theta.
  const float* values = values_P.const_data_ptr<float>();
  for (const int i : {0, 1, 4, 5}) EXPECT_NEAR(values[i], 0.9, 1e-5);
  for (const int i : {2, 3}) EXPECT_NEAR(values[i], 0.85, 1e-5);
  EXPECT_EQ(optimizer->num_updates(), 1);
  EXPECT_EQ(optimizer->state().size(), 2U);
}

/// The singular values of a matrix, by FP64.
at::Tensor singular_values(const at::Tensor& x_OI) {
  return at::linalg_svdvals(x_OI.to(at::kDouble));
}

TEST(MuonTest, OrthogonalizeKeepsTheDirectionsAndLevelsTheSingularValues) {
  // x = U S V^T with known U, V and singular values from 1 to 0.05; U V^T must come out, up to the
  // quintic's spread of 0.7 to 1.2 around 1.
  const at::Tensor u =
      std::get<0>(at::linalg_qr(at::sin(at::arange(64, at::kDouble)).view({8, 8})));
  const at::Tensor v =
      std::get<0>(at::linalg_qr(at::cos(at::arange(96, at::kDouble).mul(1.7)).view({12, 8})));
  const at::Tensor s = at::linspace(1.0, 0.05, 8, at::kDouble);
  const at::Tensor x = u.mm(at::diag(s)).mm(v.t()).to(at::kFloat);
  for (const bool tall : {false, true}) {
    const at::Tensor y = orthogonalize(tall ? x.t() : x).to(at::kDouble);
    const at::Tensor levels = u.t().mm(tall ? y.t() : y).mm(v);  // Diagonal if U, V were kept.
    const at::Tensor diagonal = at::diag(levels);
    EXPECT_LT(levels.sub(at::diag(diagonal)).abs().max().item<double>(), 1e-5);
    EXPECT_GT(diagonal.min().item<double>(), 0.65);
    EXPECT_LT(diagonal.max().item<double>(), 1.25);
  }
}

TEST(MuonTest, OrthogonalizeFollowsTheQuinticOnADiagonal) {
  // On a diagonal matrix the iteration acts on each entry alone: s <- a s + b s^3 + c s^5.
  const std::vector<double> start = {3.0, 4.0};  // Frobenius norm 5.
  std::vector<double> expected = {0.6, 0.8};
  for (double& s : expected) {
    for (int i = 0; i < 5; ++i) {
      s = 3.4445 * s - 4.7750 * std::pow(s, 3) + 2.0315 * std::pow(s, 5);
    }
  }
  const at::Tensor y = orthogonalize(at::diag(at::tensor(start)).to(at::kFloat));
  EXPECT_NEAR(y[0][0].item<double>(), expected[0], 1e-4);
  EXPECT_NEAR(y[1][1].item<double>(), expected[1], 1e-4);
}

TEST(MuonTest, AZeroGradientMovesNothingAndIsFinite) {
  EXPECT_TRUE(orthogonalize(at::zeros({3, 5}, at::kFloat)).equal(at::zeros({3, 5}, at::kFloat)));
}

TEST(MuonTest, NeighbouringMatricesAreOrthogonalizedAlone) {
  // Two adjacent 2x2 matrices with gradients of very different size: as one matrix (4, 2) the
  // second would hardly move. Alone, each update has the same singular values.
  const at::Tensor values_P = at::zeros({10}, at::kFloat);
  const at::Tensor gradients_P = at::zeros({10}, at::kFloat);
  gradients_P.slice(0, 0, 8).copy_(
      at::tensor({1.0, 0.2, 0.3, 2.0, 1e-3, 2e-4, 3e-4, 2e-3}).to(at::kFloat));
  auto optimizer = make_inner_optimizer({.optimizer = "muon"}, {.values_P = values_P,
                                                                .gradients_P = gradients_P,
                                                                .decayed = {{0, 8}},
                                                                .hidden = {{0, 2, 2}, {4, 2, 2}}});
  optimizer->step({.lr = 0.1, .weight_decay = 0.5});
  const at::Tensor first = values_P.slice(0, 0, 4).view({2, 2});
  const at::Tensor second = values_P.slice(0, 4, 8).view({2, 2});
  EXPECT_TRUE(at::allclose(first, second, 1e-3, 1e-6));
  const at::Tensor levels = singular_values(first).div(0.1 * 0.2 * std::sqrt(2.0));
  EXPECT_GT(levels.min().item<double>(), 0.65);
  EXPECT_LT(levels.max().item<double>(), 1.25);
}

TEST(MuonTest, OutsideTheHiddenMatricesItIsAdamW) {
  const method::TrainOptions muon{.optimizer = "muon"};
  const method::TrainOptions adamw{.optimizer = "adamw"};
  std::vector<at::Tensor> results;
  for (const method::TrainOptions& options : {muon, adamw}) {
    const at::Tensor values_P = at::arange(12, at::kFloat);
    const at::Tensor gradients_P = at::zeros({12}, at::kFloat);
    // An embedding [0, 4) beside a hidden matrix [4, 8), then vectors.
    auto optimizer = make_inner_optimizer(options, {.values_P = values_P,
                                                    .gradients_P = gradients_P,
                                                    .decayed = {{0, 8}},
                                                    .hidden = {{4, 2, 2}}});
    for (int i = 0; i < 3; ++i) {
      gradients_P.copy_(at::sin(at::arange(12, at::kFloat)));
      optimizer->step({.lr = 0.1, .weight_decay = 0.5});
    }
    results.push_back(values_P);
  }
  EXPECT_TRUE(results[0].slice(0, 0, 4).equal(results[1].slice(0, 0, 4)));
  EXPECT_TRUE(results[0].slice(0, 8, 12).equal(results[1].slice(0, 8, 12)));
  EXPECT_FALSE(results[0].slice(0, 4, 8).equal(results[1].slice(0, 4, 8)));
}

TEST(OptimizerTargetTest, HiddenMatricesAreThoseOfTheLayersEachAlone) {
  const weights::ModelConfig config{.vocab_size = 20,
                                    .hidden_size = 8,
                                    .intermediate_size = 12,
                                    .num_layers = 2,
                                    .num_heads = 2,
                                    .num_kv_heads = 1,
                                    .tie_embeddings = false};
  const model::Parameters parameters(config, at::kCPU, model::Purpose::kTraining);
  const OptimizerTarget target = target_of(parameters);
  ASSERT_EQ(target.hidden.size(), 14U);  // q, k, v, o, gate, up, down; twice.
  EXPECT_EQ(target.hidden[0].num_outputs, 8);
  EXPECT_EQ(target.hidden[1].num_outputs, 4);
  EXPECT_EQ(target.hidden[1].begin, target.hidden[0].end());
  EXPECT_EQ(target.decayed.front(), (std::pair<int64_t, int64_t>{0, 160}));  // The embedding.
  EXPECT_EQ(target.decayed.back().second, parameters.values_P().numel());    // The head.
  int64_t decayed = 0;
  for (const auto& [begin, end] : target.decayed) decayed += end - begin;
  EXPECT_EQ(decayed, parameters.values_P().numel() - 5 * 8);  // All but five norms.
}

/// A target of 21 values: a hidden matrix at [3, 15), decayed with its neighbours.
OptimizerTarget small_target() {
  return {.values_P = at::cos(at::arange(21, at::kFloat)),
          .gradients_P = at::zeros({21}, at::kFloat),
          .decayed = {{0, 18}},
          .hidden = {{3, 3, 4}}};
}

TEST(InnerOptimizerTest, AllScaleTheGradientsAndConsumeThem) {
  for (const char* name : {"adamw", "muon", "sgd"}) {
    SCOPED_TRACE(name);
    const OptimizerTarget scaled = small_target();
    const OptimizerTarget wanted = small_target();
    const auto by_factor = make_inner_optimizer({.optimizer = name}, scaled);
    const auto by_hand = make_inner_optimizer({.optimizer = name}, wanted);
    for (int step = 1; step <= 3; ++step) {
      const at::Tensor gradients_P = at::sin(at::arange(21, at::kFloat) * step);
      scaled.gradients_P.copy_(gradients_P);
      wanted.gradients_P.copy_(gradients_P).mul_(0.3);
      by_factor->step({.lr = 0.1, .weight_decay = 0.5, .gradient_scale = 0.3});
      by_hand->step({.lr = 0.1, .weight_decay = 0.5});
      EXPECT_TRUE(scaled.values_P.equal(wanted.values_P));
      EXPECT_FALSE(scaled.values_P.equal(small_target().values_P));
      for (const OptimizerTarget& target : {scaled, wanted}) {
        EXPECT_EQ(target.gradients_P.count_nonzero().item<int64_t>(), 0);
      }
    }
  }
}

TEST(InnerOptimizerTest, ManyGradientsAreZeroAndTakeNoMemoryUntilTheNextPass) {
  constexpr auto kSize = static_cast<int64_t>(model::kLeastWorth / sizeof(float));
  for (const char* name : {"adamw", "sgd"}) {
    SCOPED_TRACE(name);
    const OptimizerTarget target{.values_P = model::page_zeros(kSize, at::kFloat),
                                 .gradients_P = model::page_zeros(kSize, at::kFloat),
                                 .decayed = {},
                                 .hidden = {}};
    if (!model::is_worth_forgetting(target.gradients_P)) GTEST_SKIP() << "no pages are moved here";
    method::TrainOptions options;
    options.optimizer = name;
    auto optimizer = make_inner_optimizer(options, target);
    optimizer->step({.lr = 0.5});
    for (const bool skips : {false, true}) {
      target.gradients_P.fill_(1);
      const double before = resident_memory_bytes();
      if (skips) {
        optimizer->skip();
      } else {
        optimizer->step({.lr = 0.5});
      }
      EXPECT_LT(resident_memory_bytes(), before - 200e6);
      EXPECT_EQ(target.gradients_P.max().item<float>(), 0);
    }
    EXPECT_LT(target.values_P.max().item<float>(), -0.1);
  }
}

TEST(InnerOptimizerTest, SkippingGivesTheGradientsUpAndMovesNothing) {
  for (const char* name : {"adamw", "muon", "sgd"}) {
    SCOPED_TRACE(name);
    const OptimizerTarget target = small_target();
    const auto optimizer = make_inner_optimizer({.optimizer = name}, target);
    target.gradients_P.fill_(std::numeric_limits<double>::quiet_NaN());
    optimizer->skip();
    EXPECT_EQ(optimizer->num_updates(), 0);
    EXPECT_TRUE(target.values_P.equal(small_target().values_P));
    EXPECT_TRUE(target.gradients_P.equal(at::zeros({21}, at::kFloat)));
    for (const auto& [_, moment_P] : optimizer->state()) {
      EXPECT_EQ(moment_P.count_nonzero().item<int64_t>(), 0);
    }
  }
}

TEST(InnerOptimizerTest, TheClipBringsLargeNormsToTheLimitAndLeavesSmallOnes) {
  const double norm = gradient_norm(at::ones({4}, at::kFloat).mul(3));
  EXPECT_NEAR(norm, 6.0, 1e-6);
  EXPECT_NEAR(clip_factor(norm, 1.5) * norm, 1.5, 1e-6);
  EXPECT_EQ(clip_factor(norm, 6.5), 1);
  EXPECT_EQ(clip_factor(norm, 0), 1);
}

}  // namespace
}  // namespace atl::train
