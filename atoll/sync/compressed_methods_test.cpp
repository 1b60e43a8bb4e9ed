// The methods with error feedback, and eager updates, against their equations in FP64, all replicas
// in one loop.
#include <ATen/ops/allclose.h>
#include <ATen/ops/from_blob.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "atoll/codec/codec.h"
#include "atoll/sync/strategy.h"
#include "atoll/testing_torch/toy_run.h"

namespace atl::sync {
namespace {

using Vector = std::vector<double>;

Vector to_vector(const at::Tensor& x_P) {
  return {x_P.const_data_ptr<float>(), x_P.const_data_ptr<float>() + x_P.numel()};
}

/// C of the papers: what arrives of `x`. (Shares are cut at multiples of 1024: here there is one.)
Vector through(const codec::Codec& codec, const Vector& x, uint32_t sequence) {
  const std::vector<float> values(x.begin(), x.end());
  Bytes bytes;
  codec.encode(values, bytes, sequence);
  std::vector<float> decoded(x.size());
  codec.decode(bytes, decoded, sequence);
  return {decoded.begin(), decoded.end()};
}

void train_one_step(Vector& x, const Vector& target) {
  for (size_t i = 0; i < x.size(); ++i) x[i] -= toy::kLr * (x[i] - target[i]);
}

void expect_near(const at::Tensor& ours_P, const Vector& expected, double tolerance,
                 const std::string& what) {
  const Vector ours = to_vector(ours_P);
  for (size_t i = 0; i < ours.size(); ++i)
    ASSERT_NEAR(ours[i], expected[i], tolerance) << what << " element " << i;
}

struct World {  // Two replicas.
  std::vector<Vector> x = {to_vector(toy::start_P()), to_vector(toy::start_P())};
  Vector target[2] = {to_vector(toy::target_P(0)), to_vector(toy::target_P(1))};
  size_t size = x[0].size();

  void train() {
    for (size_t m = 0; m < 2; ++m) train_one_step(x[m], target[m]);
  }
};

TEST(DataParallelTest, WithErrorFeedbackFollowsItsEquations) {
  for (const std::string name : {"random(0.5)+fp32", "rolling(0.5)+topk(0.5)+bf16",
                                 "topk(0.3)+int4", "chunk_topk(4/16)+fp16"}) {
    const auto codec = codec::make_codec(name);
    const auto ours = toy::train_together({.method = "data_parallel", .codec = name}, 2, 25);
    World world;
    Vector& x = world.x[0];
    std::vector<Vector> e(2, Vector(world.size));
    for (size_t t = 1; t <= 25; ++t) {
      Vector mean(world.size);
      for (size_t m = 0; m < 2; ++m) {
        Vector corrected(world.size);
        for (size_t i = 0; i < world.size; ++i) corrected[i] = x[i] - world.target[m][i] + e[m][i];
        const Vector sent = through(*codec, corrected, static_cast<uint32_t>(t - 1));
        for (size_t i = 0; i < world.size; ++i) {
          e[m][i] = corrected[i] - sent[i];
          mean[i] += sent[i] / 2;
        }
      }
      for (size_t i = 0; i < world.size; ++i) x[i] -= toy::kLr * mean[i];
      expect_near(ours[0].live_TP[t], x, 1e-3, name + " step " + std::to_string(t));
      EXPECT_TRUE(ours[0].live_TP[t].equal(ours[1].live_TP[t]));
    }
  }
}

TEST(DataParallelTest, KeepsWhatWasLeftOutAndNothingThatCannotBeUsed) {
  collective::Alone alone;
  const toy::Trainee dense({.method = "data_parallel", .codec = "int8"}, alone, 3);
  EXPECT_TRUE(dense.strategy->state().empty());
  const toy::Trainee sparse({.method = "data_parallel", .codec = "rolling(0.5)+fp32"}, alone, 3);
  const auto& strategy = sparse.strategy;
  const at::Tensor& gradients_P = sparse.gradients_P;
  const auto reduce = [&](int64_t step, float gradient) {
    gradients_P.fill_(gradient);
    ASSERT_TRUE(strategy->reduce_gradients(step));
  };
  reduce(1, 1);
  const at::Tensor kept_P = strategy->state().front().second.clone();
  EXPECT_TRUE(kept_P.add(gradients_P).eq(1).all().item<bool>());  // Sent, or kept.
  EXPECT_GT(kept_P.sum().item<float>(), 0);
  reduce(2, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(gradients_P.eq(0).all().item<bool>());
  EXPECT_TRUE(strategy->state().front().second.equal(kept_P));
  reduce(3, 1);
  EXPECT_TRUE(strategy->state().front().second.add(gradients_P).equal(kept_P.add(1)));
  EXPECT_THAT(strategy->take_rounds(),
              testing::ElementsAre(testing::Field(&RoundRecord::abstained, false),
                                   testing::Field(&RoundRecord::abstained, true),
                                   testing::Field(&RoundRecord::abstained, false)));
}

TEST(CocktailSgdTest, FollowsItsEquations) {
  for (const int64_t delay : {0, 1}) {
    for (const std::string name :
         {"fp32", "bf16", "int4", "e3m0", "random(0.5)+fp32", "rolling(0.5)+topk(0.5)+bf16"}) {
      const auto codec = codec::make_codec(name);
      constexpr int64_t kSteps = 25;
      const auto ours = toy::train_together(
          {.method = "cocktail_sgd", .fragment_sync_delay = delay, .codec = name}, 2, kSteps);
      World world;
      Vector g = world.x[0];
      Vector e(world.size);
      std::vector<Vector> shift(2, Vector(world.size));
      Vector update(world.size);
      const auto exchange = [&](int64_t t) {
        std::vector<Vector> sent;
        for (size_t m = 0; m < 2; ++m) {
          Vector difference(world.size);
          for (size_t i = 0; i < world.size; ++i) difference[i] = world.x[m][i] - g[i];
          sent.push_back(through(*codec, difference, static_cast<uint32_t>(t - 1)));
        }
        Vector wanted(world.size);
        for (size_t i = 0; i < world.size; ++i) wanted[i] = (sent[0][i] + sent[1][i]) / 2 + e[i];
        update = through(*codec, wanted, static_cast<uint32_t>(t - 1));
        for (size_t i = 0; i < world.size; ++i) {
          e[i] = wanted[i] - update[i];
          for (size_t m = 0; m < 2; ++m) shift[m][i] = update[i] - sent[m][i];
        }
      };
      const auto apply = [&] {
        for (size_t i = 0; i < world.size; ++i) {
          g[i] += update[i];
          for (size_t m = 0; m < 2; ++m) world.x[m][i] += shift[m][i];
        }
      };
      for (int64_t t = 1; t < kSteps; ++t) {  // The last step's exchange is uncompressed.
        world.train();
        if (delay == 1 && t > 1) apply();
        exchange(t);
        if (delay == 0) apply();
        const std::string what =
            name + " delay " + std::to_string(delay) + " step " + std::to_string(t);
        for (size_t m = 0; m < 2; ++m) {
          expect_near(ours[m].live_TP[static_cast<size_t>(t)], world.x[m], 1e-3, what);
        }
        expect_near(ours[0].global_TP[static_cast<size_t>(t)], g, 1e-3, what);
      }
      EXPECT_TRUE(ours[0].live_TP.back().equal(ours[1].live_TP.back()));
      EXPECT_TRUE(ours[0].global_TP.back().equal(ours[0].live_TP.back()));
    }
  }
}

TEST(CocktailSgdTest, WithoutCompressionAndDelayItAveragesParameters) {
  const auto ours = toy::train_together(
      {.method = "cocktail_sgd", .fragment_sync_delay = 0, .codec = "fp32"}, 2, 12);
  World world;
  for (size_t t = 1; t <= 12; ++t) {
    world.train();
    for (size_t i = 0; i < world.size; ++i) {
      world.x[0][i] = world.x[1][i] = (world.x[0][i] + world.x[1][i]) / 2;
    }
    for (size_t m = 0; m < 2; ++m) {
      for (size_t i = 0; i < world.size; ++i) {
        const double x = world.x[m][i];
        EXPECT_NEAR(to_vector(ours[m].live_TP[t])[i], x,
                    std::min(1e-5, 1e-6 * std::max(1.0, std::abs(x))));
      }
    }
  }
}

TEST(SparseLoCoTest, FollowsItsEquations) {
  constexpr int64_t kH = 3;
  for (const std::string name :
       {"fp32", "int4", "e3m0", "topk(0.3)+bf16", "chunk_topk(4/16)+fp16"}) {
    const auto codec = codec::make_codec(name);
    const method::SyncOptions options{.method = "sparse_loco",
                                      .sync_every = kH,
                                      .outer_lr = 0.8,
                                      .error_feedback_decay = 0.9,
                                      .codec = name};
    const auto ours = toy::train_together(options, 2, 6 * kH);
    World world;
    Vector theta = world.x[0];
    std::vector<Vector> e(2, Vector(world.size));
    for (int64_t round = 0; round < 6; ++round) {
      for (int64_t step = 0; step < kH; ++step) world.train();
      std::vector<Vector> sent;
      for (size_t m = 0; m < 2; ++m) {
        Vector corrected(world.size);
        for (size_t i = 0; i < world.size; ++i) {
          corrected[i] = 0.9 * e[m][i] + theta[i] - world.x[m][i];
        }
        sent.push_back(through(*codec, corrected, static_cast<uint32_t>(round)));
        for (size_t i = 0; i < world.size; ++i) e[m][i] = corrected[i] - sent[m][i];
      }
      for (size_t i = 0; i < world.size; ++i) {
        theta[i] -= 0.8 * (sent[0][i] + sent[1][i]) / 2;
        world.x[0][i] = world.x[1][i] = theta[i];
      }
      const auto t = static_cast<size_t>((round + 1) * kH);
      expect_near(ours[0].global_TP[t], theta, 1e-3, name);
      expect_near(ours[1].live_TP[t], theta, 1e-3, name);
    }
  }
}

/// PyTorch's Nesterov SGD.
struct Outer {
  Vector buf;
  void step(Vector& theta, const Vector& delta) {
    buf.resize(theta.size());
    for (size_t i = 0; i < theta.size(); ++i) {
      buf[i] = 0.5 * buf[i] + delta[i];
      theta[i] -= 0.6 * (delta[i] + 0.5 * buf[i]);
    }
  }
};

TEST(EagerDiLoCoTest, FollowsItsEquations) {
  constexpr int64_t kH = 3;
  constexpr int64_t kPeriods = 7;
  for (const std::string method : {"eager_diloco", "delayed_diloco"}) {
    const double share = method == "eager_diloco" ? 0.5 : 0.0;
    const method::SyncOptions options{
        .method = method, .sync_every = kH, .outer_lr = 0.6, .outer_momentum = 0.5};
    const auto ours = toy::train_together(options, 2, kPeriods * kH);
    World world;
    std::vector<Vector> theta = world.x;
    std::vector<Outer> outer(2);
    std::vector<Vector> old(2, Vector(world.size));
    Vector old_mean(world.size);
    for (int64_t period = 1; period <= kPeriods; ++period) {
      for (int64_t step = 0; step < kH; ++step) world.train();
      std::vector<Vector> fresh(2, Vector(world.size));
      for (size_t m = 0; m < 2; ++m) {
        Vector direction(world.size);
        for (size_t i = 0; i < world.size; ++i) {
          fresh[m][i] = theta[m][i] - world.x[m][i];
          direction[i] = old_mean[i] + share * (fresh[m][i] - old[m][i]);
        }
        outer[m].step(theta[m], direction);
        world.x[m] = theta[m];
        if (period < kPeriods) {
          expect_near(ours[m].live_TP[static_cast<size_t>(period * kH)], theta[m], 1e-3, method);
        }
      }
      for (size_t i = 0; i < world.size; ++i) old_mean[i] = (fresh[0][i] + fresh[1][i]) / 2;
      old = fresh;
    }
    // What the replicas have not used yet of the last means is one more outer step.
    Vector rest(world.size);
    for (size_t i = 0; i < world.size; ++i) rest[i] = (1 - share) * old_mean[i];
    for (size_t m = 0; m < 2; ++m) outer[m].step(theta[m], rest);
    Vector published(world.size);
    for (size_t i = 0; i < world.size; ++i) published[i] = (theta[0][i] + theta[1][i]) / 2;
    expect_near(ours[0].global_TP.back(), published, 1e-3, method);
    EXPECT_TRUE(ours[0].live_TP.back().equal(ours[1].live_TP.back()));
  }
}

TEST(EagerDiLoCoTest, AloneItIsDiLoCo) {
  collective::Alone first;
  collective::Alone second;
  const auto eager = toy::train({.method = "eager_diloco", .sync_every = 4}, first, 0, 16);
  const auto plain = toy::train({.method = "diloco", .sync_every = 4}, second, 0, 16);
  for (size_t t = 0; t < 17; ++t) {
    EXPECT_TRUE(at::allclose(eager.live_TP[t], plain.live_TP[t], 1e-5, 1e-5)) << t;
  }
}

/// Orthonormal DCT-II of each of the toy's vectors (they are shorter than 64), or its inverse.
Vector dct(const Vector& x, bool inverse) {
  Vector out(x.size());
  for (const auto& spec : toy::specs()) {
    for (int64_t k = 0; k < spec.size; ++k) {
      for (int64_t n = 0; n < spec.size; ++n) {
        // Where the cosine is zero std::cos gives 1e-16 or so, whose sign would count in DeMo.
        const bool is_zero = (2 * n + 1) * k % (2 * spec.size) == spec.size;
        const double cosine =
            std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(spec.size)) *
            (is_zero ? 0.0
                     : std::cos(std::numbers::pi * (static_cast<double>(n) + 0.5) *
                                static_cast<double>(k) / static_cast<double>(spec.size)));
        const auto frequency = static_cast<size_t>(spec.offset + k);
        const auto element = static_cast<size_t>(spec.offset + n);
        if (inverse) {
          out[element] += cosine * x[frequency];
        } else {
          out[frequency] += cosine * x[element];
        }
      }
    }
  }
  return out;
}

TEST(DeMoTest, FollowsItsEquations) {
  for (const std::string name : {"fp32", "chunk_topk(3/8)+fp32", "topk(0.2)+bf16"}) {
    const auto codec = codec::make_codec(name);
    const auto ours =
        toy::train_together({.method = "demo", .momentum_decay = 0.9, .codec = name}, 2, 20);
    World world;
    std::vector<Vector> momentum(2, Vector(world.size));
    for (int64_t t = 1; t <= 20; ++t) {
      Vector mean(world.size);
      for (size_t m = 0; m < 2; ++m) {
        for (size_t i = 0; i < world.size; ++i) {
          momentum[m][i] = 0.9 * momentum[m][i] + world.x[0][i] - world.target[m][i];
        }
        const Vector sent = through(*codec, dct(momentum[m], false), static_cast<uint32_t>(t - 1));
        const Vector taken = dct(sent, true);
        for (size_t i = 0; i < world.size; ++i) {
          momentum[m][i] -= taken[i];
          mean[i] += sent[i] / 2;
        }
      }
      const Vector direction = dct(mean, true);
      for (size_t i = 0; i < world.size; ++i) {
        world.x[0][i] -= toy::kLr * ((direction[i] > 0) - (direction[i] < 0));
      }
      const auto step = static_cast<size_t>(t);
      expect_near(ours[0].live_TP[step], world.x[0], 1e-4, name + " step " + std::to_string(t));
      EXPECT_TRUE(ours[0].live_TP[step].equal(ours[1].live_TP[step]));
    }
  }
}

TEST(DeMoTest, AMomentumThatOutgrewTheCodecAbstains) {
  // Each value fits FP16, and so not the mean of a row times the root of its length.
  collective::Alone alone;
  const toy::Trainee trainee({.method = "demo", .codec = "fp16"}, alone, 2);
  for (const int64_t step : {1, 2}) {
    trainee.gradients_P.fill_(step == 1 ? 6e4F : 1.0F);
    ASSERT_TRUE(trainee.strategy->reduce_gradients(step));
  }
  const auto rounds = trainee.strategy->take_rounds();
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_TRUE(rounds[0].abstained);
  EXPECT_FALSE(rounds[1].abstained);  // The momentum began anew.
}

TEST(CompressedMethodsTest, ResumeIsBitIdentical) {
  toy::expect_exact_resume({.method = "data_parallel", .codec = "rolling(0.5)+topk(0.5)+bf16"}, 9);
  for (const std::string method :
       {"cocktail_sgd", "sparse_loco", "eager_diloco", "delayed_diloco", "demo"}) {
    const method::SyncOptions options = {
        .method = method, .sync_every = 4, .fragment_sync_delay = 1, .codec = "bf16"};
    toy::expect_exact_resume(options, 18);
    toy::expect_exact_resume(options, 18, /*abstains_at=*/8);
  }
}

}  // namespace
}  // namespace atl::sync
