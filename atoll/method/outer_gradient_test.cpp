#include "atoll/method/outer_gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/method/outer_optimizer.h"
#include "atoll/method/sync_options.h"

namespace atl::method {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

/// An embedding (2, 2), a layer's matrix (2, 4) and vector (2), the last norm (2).
std::vector<weights::ParameterSpec> specs() {
  return {{"embedding", {2, 2}, 0, 4, -1},
          {"matrix", {2, 4}, 4, 8, 0},
          {"vector", {2}, 12, 2, 0},
          {"norm", {2}, 14, 2, -1}};
}

std::vector<float> random_values(uint64_t seed, size_t size) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(random_normal(seed, 0, i));
  return values;
}

TEST(PruneNeuronsTest, TheSmallestOfEachRowGo) {
  std::vector<float> delta = {1, 2, -3, 0.5F, 4, -1, 2, -3, 0.1F, 0.4F, -0.3F, 0.2F, 5, 6, 7, 8};
  prune_neurons(specs(), 0.5, delta);
  EXPECT_THAT(delta, ElementsAre(0, 2, -3, 0, 4, 0, 0, -3, 0, 0.4F, -0.3F, 0, 5, 6, 7, 8));
}

TEST(PruneNeuronsTest, OfEqualOnesTheFirstGo) {
  std::vector<float> delta(16, -1.0F);
  prune_neurons(specs(), 0.25, delta);  // A row of two loses none: rounded down.
  EXPECT_THAT(delta, ElementsAre(-1, -1, -1, -1, 0, -1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1));
}

TEST(PruneNeuronsTest, ShareZeroChangesNothing) {
  const auto delta = random_values(1, 16);
  auto pruned = delta;
  prune_neurons(specs(), 0, pruned);
  EXPECT_EQ(pruned, delta);
}

TEST(PruneNeuronsTest, ExactlyTheShareGoesAndNothingKeptIsSmaller) {
  constexpr int64_t kWidth = 101;
  const std::vector<weights::ParameterSpec> one = {{"m", {7, kWidth}, 0, 7 * kWidth, 0}};
  for (const double share : {0.1, 0.5, 0.75}) {
    const auto delta = random_values(2, 7 * kWidth);
    auto pruned = delta;
    prune_neurons(one, share, pruned);
    for (size_t row = 0; row < 7; ++row) {
      int64_t zeros = 0;
      float largest_gone = 0;
      float smallest_kept = std::numeric_limits<float>::max();
      for (size_t i = row * kWidth; i < (row + 1) * kWidth; ++i) {
        if (pruned[i] == 0) {
          ++zeros;
          largest_gone = std::max(largest_gone, std::abs(delta[i]));
        } else {
          EXPECT_EQ(pruned[i], delta[i]);
          smallest_kept = std::min(smallest_kept, std::abs(delta[i]));
        }
      }
      EXPECT_EQ(zeros, static_cast<int64_t>(share * kWidth));
      EXPECT_LE(largest_gone, smallest_kept);
    }
  }
}

TEST(PruneNeuronsTest, NotANumberStaysSoThatItIsSeen) {
  std::vector<float> delta(16, 1.0F);
  delta[6] = std::numeric_limits<float>::quiet_NaN();
  prune_neurons(specs(), 0.75, delta);
  EXPECT_TRUE(std::isnan(delta[6]));
}

/// The radial-directional mean by the definition, in FP64, for the span [begin, end).
std::vector<double> rda(const std::vector<std::vector<float>>& replicas,
                        const std::vector<double>& weights, size_t begin, size_t end) {
  std::vector<double> direction(end - begin);
  double length = 0;
  double total = 0;
  for (size_t m = 0; m < replicas.size(); ++m) {
    double norm = 0;
    for (size_t i = begin; i < end; ++i) norm += std::pow(replicas[m][i], 2);
    norm = std::sqrt(norm);
    length += weights[m] * norm;
    total += weights[m];
    for (size_t i = begin; i < end; ++i) direction[i - begin] += weights[m] * replicas[m][i] / norm;
  }
  double norm = 0;
  for (const double x : direction) norm += x * x;
  for (double& x : direction) x *= length / total / std::sqrt(norm);
  return direction;
}

TEST(RadialMeanTest, IsTheDefinition) {
  const RadialMean radial(specs());
  ASSERT_EQ(radial.num_values(), 18U);
  const std::vector<std::vector<float>> replicas = {random_values(3, 16), random_values(4, 16),
                                                    random_values(5, 16)};
  const std::vector<double> weights = {1, 2, 5};
  std::vector<float> mean(18);
  for (size_t m = 0; m < 3; ++m) {
    std::vector<float> sent = replicas[m];
    sent.resize(18);
    radial.split(sent);
    for (size_t i = 0; i < 18; ++i) mean[i] += static_cast<float>(weights[m] / 8) * sent[i];
  }
  std::vector<float> result(16);
  radial.join(mean, result);
  for (const auto& [begin, end] : {std::pair<size_t, size_t>{4, 12}, {12, 14}}) {
    const auto expected = rda(replicas, weights, begin, end);
    for (size_t i = begin; i < end; ++i) EXPECT_NEAR(result[i], expected[i - begin], 1e-6);
  }
  for (const size_t i : {0U, 3U, 14U, 15U}) {  // Outside the layers: the arithmetic mean.
    const double expected = (replicas[0][i] + 2.0 * replicas[1][i] + 5.0 * replicas[2][i]) / 8;
    EXPECT_NEAR(result[i], expected, 1e-6);
  }
}

TEST(RadialMeanTest, OrthogonalReplicasKeepTheirLength) {
  // The arithmetic mean of four orthogonal vectors of length 2 has length 1; this one 2.
  const std::vector<weights::ParameterSpec> one = {{"m", {1, 4}, 0, 4, 0}};
  const RadialMean radial(one);
  std::vector<float> mean(5);
  for (size_t m = 0; m < 4; ++m) {
    std::vector<float> sent(5);
    sent[m] = 2;
    radial.split(sent);
    for (size_t i = 0; i < 5; ++i) mean[i] += sent[i] / 4;
  }
  std::vector<float> result(4);
  radial.join(mean, result);
  EXPECT_THAT(result, Pointwise(FloatNear(1e-6F), std::vector<float>{1, 1, 1, 1}));
}

TEST(RadialMeanTest, ZeroAndOppositeVectorsGiveZero) {
  const std::vector<weights::ParameterSpec> one = {{"m", {1, 2}, 0, 2, 0}};
  const RadialMean radial(one);
  std::vector<float> nothing = {0, 0, 0};
  radial.split(nothing);
  EXPECT_THAT(nothing, ElementsAre(0, 0, 0));
  std::vector<float> result(2);
  radial.join(std::vector<float>{0, 0, 3}, result);  // Directions cancelled, lengths did not.
  EXPECT_THAT(result, ElementsAre(0, 0));
}

TEST(DropoutTest, IsTheShareAndAFunctionOfSeedRoundAndRank) {
  int dropped = 0;
  for (int64_t round = 0; round < 2000; ++round) {
    for (int64_t rank = 0; rank < 4; ++rank) dropped += is_dropped(0.3, 7, round, rank) ? 1 : 0;
  }
  EXPECT_NEAR(dropped, 2400, 4 * std::sqrt(8000 * 0.3 * 0.7));
  const auto pattern = [](uint64_t seed, int64_t rank) {
    std::vector<bool> out;
    for (int64_t round = 0; round < 64; ++round) out.push_back(is_dropped(0.5, seed, round, rank));
    return out;
  };
  EXPECT_EQ(pattern(1, 0), pattern(1, 0));
  EXPECT_NE(pattern(1, 0), pattern(2, 0));
  EXPECT_NE(pattern(1, 0), pattern(1, 1));
  EXPECT_THAT(pattern(1, 0), ::testing::Contains(true));
  EXPECT_FALSE(is_dropped(0, 1, 0, 0));
}

TEST(SyncOptionsTest, WhatAMethodCannotUseIsRefusedByName) {
  const auto message = [](const SyncOptions& options) -> std::string {
    try {
      check(options);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(message({.outer_mean = "radial", .sign_pruning = 0.5, .outer_dropout = 0.1}), "");
  EXPECT_THAT(message({.method = "streaming_diloco", .outer_mean = "radial"}),
              HasSubstr("sync.outer_mean"));
  EXPECT_THAT(message({.method = "data_parallel", .sign_pruning = 0.5}),
              HasSubstr("sync.sign_pruning"));
  EXPECT_THAT(message({.method = "data_parallel", .outer_dropout = 0.5}),
              HasSubstr("sync.outer_dropout"));
  EXPECT_THAT(message({.outer_mean = "radial", .codec = "int4"}), HasSubstr("sync.codec"));
  EXPECT_EQ(message({.outer_device = "train"}), "");
  EXPECT_THAT(message({.outer_mean = "radial", .outer_device = "train"}),
              HasSubstr("sync.outer_device"));
  EXPECT_THAT(message({.sign_pruning = 0.5, .outer_device = "train"}),
              HasSubstr("sync.outer_device"));
  EXPECT_THAT(message({.codec = "topk(0.1)+fp32"}),
              HasSubstr("sync.codec = 'topk(0.1)+fp32' leaves"));
  EXPECT_THAT(message({.method = "streaming_diloco", .codec = "cocktail"}),
              HasSubstr("sync.codec"));
  EXPECT_THAT(message({.method = "cocktail_sgd", .layer_metrics = true}),
              HasSubstr("sync.layer_metrics"));
  EXPECT_THAT(message({.outer_mean = "radial", .layer_metrics = true}),
              HasSubstr("sync.layer_metrics cannot be used with sync.outer_mean"));
  EXPECT_EQ(message({.outer_lr = -1}), "");
  EXPECT_THAT(message({.outer_lr = -0.5}), HasSubstr("sync.outer_lr = -0.5"));
  EXPECT_THAT(message({.codec = "e4m3"}), HasSubstr("sync.codec: unknown codec 'e4m3'"));
  for (const char* method : {"sparse_loco", "demo"}) {  // Their codec is their momentum.
    EXPECT_THAT(message({.method = method, .codec = "auto"}), HasSubstr("sync.codec = 'auto'"));
  }
  for (const char* method : {"data_parallel", "diloco", "streaming_diloco", "cocktail_sgd"}) {
    EXPECT_EQ(message({.method = method, .codec = "auto"}), "");
  }
  for (const char* method : {"cocktail_sgd", "sparse_loco", "data_parallel"}) {
    EXPECT_EQ(message({.method = method}), "");
    EXPECT_EQ(message({.method = method, .codec = "random(0.1)+sign3"}), "");
  }
}

/// Six steps on a vector of outer gradients that a counter makes.
class OuterOptimizerTest : public ::testing::Test {
 protected:
  static constexpr size_t kSize = 5;

  std::vector<float> run(const OuterOptimizer& optimizer) {
    std::vector<float> theta = random_values(10, kSize);
    std::vector<float> momentum(optimizer.has_momentum() ? kSize : 0);
    std::vector<float> square(optimizer.has_square() ? kSize : 0);
    for (int64_t t = 1; t <= 6; ++t) {
      const auto delta = random_values(static_cast<uint64_t>(100 + t), kSize);
      std::vector<float> next_theta(kSize);
      auto next_momentum = momentum;
      auto next_square = square;
      optimizer.step(t, delta, {theta, momentum, square}, {next_theta, next_momentum, next_square});
      theta = next_theta;
      momentum = next_momentum;
      square = next_square;
    }
    return theta;
  }

  /// The same in FP64; `direction` maps (t, gradient, two memories) to what theta moves by.
  template <typename Direction>
  std::vector<double> expected(double lr, Direction direction) {
    const auto start = random_values(10, kSize);
    std::vector<double> theta(start.begin(), start.end());
    for (size_t i = 0; i < kSize; ++i) {
      double first = 0;
      double second = 0;
      for (int t = 1; t <= 6; ++t) {
        const double delta = random_values(static_cast<uint64_t>(100 + t), kSize)[i];
        theta[i] -= lr * direction(t, delta, first, second);
      }
    }
    return theta;
  }

  static void expect_near(const std::vector<float>& ours, const std::vector<double>& expected) {
    for (size_t i = 0; i < kSize; ++i) EXPECT_NEAR(ours[i], expected[i], 1e-5);
  }
};

TEST_F(OuterOptimizerTest, Sgd) {
  expect_near(run({.rule = OuterRule::kSgd, .lr = 0.7F}),
              expected(0.7, [](int, double delta, double&, double&) { return delta; }));
}

TEST_F(OuterOptimizerTest, HeavyBall) {
  expect_near(run({.rule = OuterRule::kHeavyBall, .lr = 0.3F, .momentum = 0.8F}),
              expected(0.3, [](int, double delta, double& buf, double&) {
                return buf = 0.8 * buf + delta;
              }));
}

TEST_F(OuterOptimizerTest, Nesterov) {
  expect_near(run({.rule = OuterRule::kNesterov, .lr = 0.7F, .momentum = 0.9F}),
              expected(0.7, [](int, double delta, double& buf, double&) {
                buf = 0.9 * buf + delta;
                return delta + 0.9 * buf;
              }));
}

TEST_F(OuterOptimizerTest, AdamWithItsBiasCorrection) {
  expect_near(
      run({.rule = OuterRule::kAdam, .lr = 0.3F, .momentum = 0.9F, .beta2 = 0.95F, .eps = 0.1F}),
      expected(0.3, [](int t, double delta, double& mean, double& square) {
        mean = 0.9 * mean + 0.1 * delta;
        square = 0.95 * square + 0.05 * delta * delta;
        return mean / (1 - std::pow(0.9, t)) / (std::sqrt(square / (1 - std::pow(0.95, t))) + 0.1);
      }));
}

TEST_F(OuterOptimizerTest, NextMayBeOld) {
  const OuterOptimizer optimizer{.rule = OuterRule::kAdam, .lr = 0.3F};
  auto theta = random_values(10, kSize);
  std::vector<float> momentum(kSize);
  std::vector<float> square(kSize);
  for (int64_t t = 1; t <= 6; ++t) {
    optimizer.step(t, random_values(static_cast<uint64_t>(100 + t), kSize),
                   {theta, momentum, square}, {theta, momentum, square});
  }
  EXPECT_EQ(theta, run(optimizer));
}

}  // namespace
}  // namespace atl::method
