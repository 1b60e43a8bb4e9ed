// The operations of devices against their formulas in FP64, forwards and backwards: on the CPU, on
// a stand-in for a GPU, and on a GPU where there is one; in FP32, and in BF16 with FP32 weights.
#include "atoll/model/composite.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "atoll/testing_torch/stand_in_device.h"

namespace atl::model {
namespace {

using Operation = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

std::vector<at::Device> devices() { return {at::kCPU, stand_in::a_device()}; }

at::Tensor leaf(const at::Tensor& value, at::TensorOptions options) {
  return value.detach().to(options, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, double tolerance) {
  const at::Tensor difference = found.detach().cpu().to(at::kDouble) - wanted.detach();
  EXPECT_LT(difference.norm().item<double>(), tolerance * wanted.norm().item<double>());
}

/// Values and gradients, the inputs' and the weights'. The formula is given what the operation is
/// given, to the bit, so that only the operation's own roundings are seen.
void expect_formula(const std::vector<at::Tensor>& activations,
                    const std::vector<at::Tensor>& weights, const Operation& operation,
                    const Operation& formula) {
  for (const at::Device device : devices()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(device.str() + " " + c10::toString(type));
      const double tolerance = type == at::kFloat ? 2e-5 : 2e-2;
      std::vector<at::Tensor> given;
      std::vector<at::Tensor> exact;
      const auto add = [&](const at::Tensor& x, at::ScalarType own) {
        given.push_back(leaf(x, at::TensorOptions(device).dtype(own)));
        exact.push_back(leaf(x.to(own), at::kDouble));
      };
      for (const at::Tensor& x : activations) add(x, type);
      for (const at::Tensor& x : weights) add(x, at::kFloat);
      const at::Tensor y = operation(given);
      const at::Tensor y64 = formula(exact);
      ASSERT_EQ(y.scalar_type(), type);
      ASSERT_EQ(y.sizes(), y64.sizes());
      expect_near(y, y64, tolerance);
      const at::Tensor dy = random(y.sizes().vec(), 99).to(type);
      y.backward(dy.to(device));
      y64.backward(dy.to(at::kDouble));
      for (size_t i = 0; i < given.size(); ++i) {
        SCOPED_TRACE(i);
        EXPECT_EQ(given[i].grad().scalar_type(), given[i].scalar_type());
        expect_near(given[i].grad(), exact[i].grad(), tolerance);
      }
    }
  }
}

TEST(CompositeTest, RmsNormIsXOverItsRootMeanSquareTimesWeight) {
  expect_formula(
      {random({2, 7, 40}, 1)}, {random({40}, 2)},
      [](const auto& in) { return composite::rms_norm(in[0], in[1], 0.01); },
      [](const auto& in) { return in[0] / (in[0].square().mean(-1, true) + 0.01).sqrt() * in[1]; });
}

TEST(CompositeTest, SwiGluIsSiluOfTheFirstHalfTimesTheSecond) {
  expect_formula(
      {random({2, 7, 2 * 24}, 1) * 4}, {}, [](const auto& in) { return composite::swiglu(in[0]); },
      [](const auto& in) {
        const at::Tensor gate = in[0].slice(-1, 0, 24);
        return gate * gate.sigmoid() * in[0].slice(-1, 24, 48);
      });
}

constexpr AttentionShape kShape{2, 9, 4, 2, 8};

TEST(CompositeTest, HeadNormNormalisesQueriesAndKeysAlone) {
  expect_formula(
      {random({2, 9, kShape.row_width()}, 1)}, {random({8}, 2), random({8}, 3)},
      [](const auto& in) { return composite::head_norm(kShape, in[0], in[1], in[2], 0.01); },
      [](const auto& in) {
        const at::Tensor x = in[0].view({2, 9, 8, 8});
        const at::Tensor normal = x / (x.square().mean(-1, true) + 0.01).sqrt();
        return at::cat(
                   {normal.slice(2, 0, 4) * in[1], normal.slice(2, 4, 6) * in[2], x.slice(2, 6, 8)},
                   2)
            .flatten(2);
      });
}

TEST(CompositeTest, RotatedTurnsPairsOfQueriesAndKeys) {
  for (const int64_t turning : {8, 4}) {
    const int64_t half = turning / 2;
    const at::Tensor angles_TR = random({9, half}, 7) * 3;
    expect_formula(
        {random({2, 9, kShape.row_width()}, 1)}, {},
        [&](const auto& in) {
          const at::Tensor angles = angles_TR.to(in[0].device());
          return composite::rotated(kShape, in[0], angles.cos(), angles.sin());
        },
        [&](const auto& in) {
          const at::Tensor angles = angles_TR.to(at::kDouble).view({1, 9, 1, half});
          const at::Tensor x = in[0].view({2, 9, 8, 8});
          const at::Tensor low = x.slice(3, 0, half);
          const at::Tensor high = x.slice(3, half, turning);
          const at::Tensor all =
              at::cat({low * angles.cos() - high * angles.sin(),
                       high * angles.cos() + low * angles.sin(), x.slice(3, turning, 8)},
                      3);
          return at::cat({all.slice(2, 0, 6), x.slice(2, 6, 8)}, 2).flatten(2);
        });
  }
}

/// Head by head, query by query.
at::Tensor attention_by_loops(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                              double softcap, const at::Tensor& sinks_H) {
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const at::Tensor heads = qkv_BTF.view({shape.batch, shape.positions, -1, shape.head_size});
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < shape.positions; ++t) {
    const int64_t from = shape.window > 0 ? std::max<int64_t>(0, t + 1 - shape.window) : 0;
    std::vector<at::Tensor> read;
    for (int64_t h = 0; h < shape.num_heads; ++h) {
      const int64_t key = shape.num_heads + h / group;
      const at::Tensor q_B1N = heads.select(2, h).slice(1, t, t + 1);
      const at::Tensor k_BSN = heads.select(2, key).slice(1, from, t + 1);
      const at::Tensor v_BSN = heads.select(2, key + shape.num_kv_heads).slice(1, from, t + 1);
      at::Tensor scores_BS = (q_B1N * k_BSN).sum(2) * static_cast<double>(shape.scale);
      if (softcap > 0) scores_BS = (scores_BS / softcap).tanh() * softcap;
      at::Tensor sum_B1 = scores_BS.exp().sum(1, true);
      if (sinks_H.defined()) sum_B1 = sum_B1 + sinks_H[h].exp();
      read.push_back(((scores_BS.exp() / sum_B1).unsqueeze(2) * v_BSN).sum(1));
    }
    rows.push_back(at::cat(read, 1));
  }
  return at::stack(rows, 1);
}

TEST(CompositeTest, AttentionIsTheSoftmaxOfWhatEachQuerySees) {
  for (const int64_t window : {0, 3}) {
    for (const bool is_capped : {false, true}) {
      SCOPED_TRACE(window);
      SCOPED_TRACE(is_capped);
      const AttentionShape shape{2, 9, 4, 2, 8, window, 0.3F};
      const double cap = is_capped ? 2 : 0;
      std::vector<at::Tensor> weights;
      if (is_capped) weights.push_back(random({4}, 4));
      expect_formula(
          {random({2, 9, shape.row_width()}, 1)}, weights,
          [&](const auto& in) {
            return composite::attention(shape, in[0], {cap, is_capped ? in[1] : at::Tensor()});
          },
          [&](const auto& in) {
            return attention_by_loops(shape, in[0], cap, is_capped ? in[1] : at::Tensor());
          });
    }
  }
}

TEST(CompositeTest, SoftmaxLossLeavesTheGradientOverTheLogits) {
  const at::Tensor targets = at::tensor({0, 99, 5, -100, 17}, at::kLong);
  const SoftmaxLoss options{.z_loss = 0.01F, .scale = 0.25F};
  for (const at::Device device : devices()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(device.str() + " " + c10::toString(type));
      const at::Tensor logits = (random({5, 100}, 1) * 10).to(type);
      const at::Tensor x64 = leaf(logits, at::kDouble);
      const at::Tensor square = x64.logsumexp(1).square() * (targets >= 0);
      const at::Tensor loss = at::cross_entropy_loss(x64, targets, {}, /*reduction=none*/ 0);
      ((loss.sum() + square.sum() * 0.01) * (0.25 / 4)).backward();

      const at::Tensor work = logits.to(device, type, /*non_blocking=*/false, /*copy=*/true);
      const auto on_device = at::TensorOptions(device).dtype(at::kFloat);
      const at::Tensor losses = at::empty({5}, on_device);
      const at::Tensor squares = at::empty({5}, on_device);
      const at::Tensor count = at::full({}, 4, on_device);
      SoftmaxLoss without = options;
      without.scale = 0;
      composite::softmax_loss(work, targets.to(device), count, without, losses, squares);
      expect_near(work, logits.to(at::kDouble), 1e-12);  // As it was.
      composite::softmax_loss(work, targets.to(device), count, options, losses, squares);
      expect_near(losses, loss, 1e-6);
      expect_near(squares, square, 1e-6);
      expect_near(work, x64.grad(), type == at::kFloat ? 1e-5 : 1e-2);
      EXPECT_EQ(work.cpu()[3].abs().max().item<float>(), 0);
    }
  }
}

TEST(CompositeTest, ProductsOfNarrowFactorsAreSummedInTheTypeOfTheResult) {
  // 999 halves: their sum, and twice that, BF16 does not have.
  const at::Tensor a = at::ones({4, 999});
  const at::Tensor b = at::full({999, 8}, 0.5);
  for (const at::Device device : devices()) {
    SCOPED_TRACE(device.str());
    const at::Tensor out = at::full({4, 8}, 3, at::TensorOptions(device).dtype(at::kFloat));
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      composite::matmul(out, a.to(device, type), b.to(device, type));
      EXPECT_TRUE(at::equal(out.cpu(), at::full({4, 8}, 499.5F)));
      composite::matmul(out, a.to(device, type), b.to(device, type), /*accumulates=*/true);
      EXPECT_TRUE(at::equal(out.cpu(), at::full({4, 8}, 999.0F)));
    }
  }
}

}  // namespace
}  // namespace atl::model
