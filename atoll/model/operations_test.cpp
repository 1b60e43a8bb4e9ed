// The CPU kernels against the composite operations in FP64, forward and backward.
#include "atoll/model/operations.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "atoll/model/composite.h"
#include "atoll/model/kernels.h"
#include "atoll/model/model.h"

namespace atl::model {
namespace {

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

Weight trainable(const at::Tensor& value) {
  Weight weight{value, at::zeros_like(value)};
  weight.value.set_requires_grad(true);
  weight.value.mutable_grad() = weight.grad;
  return weight;
}

at::Tensor leaf(const at::Tensor& value, at::ScalarType type) {
  return value.detach().to(type, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, double tolerance,
                 const char* what) {
  const at::Tensor wanted_double = wanted.detach().to(at::kDouble);
  const double scale = wanted_double.abs().max().item<double>() + 1e-30;
  const double error =
      (found.detach().to(at::kDouble) - wanted_double).abs().max().item<double>() / scale;
  EXPECT_LT(error, tolerance) << what;
}

TEST(OperationsTest, LinearAddsItsWeightsGradientInPlace) {
  const at::Tensor x = leaf(random({2, 5, 8}, 1), at::kFloat);
  const Weight weight = trainable(random({6, 8}, 2));
  weight.grad.fill_(1);  // It must be added to.
  const at::Tensor dy = random({2, 5, 6}, 3);
  linear(weight, x).backward(dy);

  const at::Tensor x64 = leaf(x, at::kDouble);
  const at::Tensor w64 = leaf(weight.value, at::kDouble);
  at::linear(x64, w64).backward(dy.to(at::kDouble));
  expect_near(x.grad(), x64.grad(), 1e-6, "dx");
  expect_near(weight.grad, w64.grad() + 1, 1e-6, "dw");
}

TEST(OperationsTest, EmbeddingSumsTheGradientsOfRepeatedTokens) {
  const Weight weight = trainable(random({10, 70}, 1));
  const at::Tensor tokens = at::tensor({3, 3, 0, 9, 3, 1}, at::kLong).view({2, 3});
  const at::Tensor dy = random({2, 3, 70}, 2);
  embed(weight, tokens).backward(dy);
  const at::Tensor w64 = leaf(weight.value, at::kDouble);
  w64.index_select(0, tokens.view(-1)).view({2, 3, 70}).backward(dy.to(at::kDouble));
  expect_near(weight.grad, w64.grad(), 1e-6, "dw");
}

TEST(OperationsTest, RmsNormWithAndWithoutResidualMatchesFp64) {
  for (const int64_t rows : {1, 7, 300}) {
    const at::Tensor x = leaf(random({1, rows, 37}, 1), at::kFloat);
    const at::Tensor delta = leaf(random({1, rows, 37}, 2), at::kFloat);
    const Weight first = trainable(random({37}, 3));
    const Weight second = trainable(random({37}, 4));
    const auto [sum, y] = add_rms_norm(first, rms_norm(second, x, 1e-5), delta, 1e-5);
    const at::Tensor dy = random({1, rows, 37}, 5);
    (sum * dy + y * y).sum().backward();

    const at::Tensor x64 = leaf(x, at::kDouble);
    const at::Tensor delta64 = leaf(delta, at::kDouble);
    const at::Tensor first64 = leaf(first.value, at::kDouble);
    const at::Tensor second64 = leaf(second.value, at::kDouble);
    const at::Tensor sum64 = composite::rms_norm(x64, second64, 1e-5) + delta64;
    const at::Tensor y64 = composite::rms_norm(sum64, first64, 1e-5);
    (sum64 * dy + y64 * y64).sum().backward();
    expect_near(y, y64, 1e-5, "y");
    expect_near(x.grad(), x64.grad(), 1e-5, "dx");
    expect_near(delta.grad(), delta64.grad(), 1e-5, "ddelta");
    expect_near(first.grad, first64.grad(), 1e-5, "dfirst");
    expect_near(second.grad, second64.grad(), 1e-5, "dsecond");
  }
}

TEST(OperationsTest, ARmsNormBesideItsInputAddsBothGradients) {
  const at::Tensor x = leaf(random({2, 7, 37}, 1), at::kFloat);
  const Weight weight = trainable(random({37}, 3));
  const at::Tensor dx = random({2, 7, 37}, 5);
  const auto [same, y] = add_rms_norm(weight, x, {}, 1e-5);
  EXPECT_TRUE(at::equal(same, x));
  EXPECT_TRUE(at::equal(y, rms_norm(weight, x, 1e-5)));
  (same * dx + y * y).sum().backward();

  const at::Tensor x64 = leaf(x, at::kDouble);
  const at::Tensor weight64 = leaf(weight.value, at::kDouble);
  (x64 * dx + composite::rms_norm(x64, weight64, 1e-5).square()).sum().backward();
  expect_near(x.grad(), x64.grad(), 1e-5, "dx");
  expect_near(weight.grad, weight64.grad(), 1e-5, "dweight");
  add_rms_norm(weight, x, {}, 1e-5).first.sum().backward();  // Nobody reads the norm.
  expect_near(x.grad(), x64.grad() + 1, 1e-5, "dx of x alone");
}

TEST(OperationsTest, AMatrixWithInputsFirstMultipliesAndLearnsAsItsTranspose) {
  for (const int64_t inner : {8, 2000}) {  // 2000: large enough for oneDNN.
    const at::Tensor x = random({40, 60}, 1);
    const Weight plain = trainable(random({inner, 60}, 2));
    const Weight turned{plain.value.detach().t().contiguous().t().set_requires_grad(true),
                        at::zeros({60, inner}).t()};
    const at::Tensor dy = random({40, inner}, 3);
    const at::Tensor x1 = leaf(x, at::kFloat);
    const at::Tensor x2 = leaf(x, at::kFloat);
    const at::Tensor y1 = linear(plain, x1);
    const at::Tensor y2 = linear(turned, x2);
    y1.backward(dy);
    y2.backward(dy);
    expect_near(y2, y1, 1e-5, "y");
    expect_near(x2.grad(), x1.grad(), 1e-5, "dx");
    expect_near(turned.grad, plain.grad, 1e-5, "dw");
  }
}

TEST(OperationsTest, ActivationsHaveTheBitsOfARowAloneAndMatchFp64) {
  using Operation = at::Tensor (*)(const at::Tensor&);
  const at::NoGradGuard no_grad;
  const int threads = at::get_num_threads();
  for (const Operation operation :
       {Operation{gelu_tanh}, Operation{geglu}, Operation{swiglu}, Operation{clamped_swiglu}}) {
    for (const int64_t width : {6, 38, 3072}) {
      const at::Tensor x = random({45, 2 * width}, 1).to(at::kFloat) * 6;
      at::set_num_threads(3);
      const at::Tensor together = operation(x);
      at::set_num_threads(1);
      for (int64_t row = 0; row < x.size(0); ++row) {
        ASSERT_TRUE(at::equal(operation(x.narrow(0, row, 1)), together.narrow(0, row, 1)));
      }
      // In double it goes LibTorch's way.
      expect_near(together, operation(x.to(at::kDouble)), 1e-6, "activation");
    }
  }
  at::set_num_threads(threads);
}

TEST(OperationsTest, SwiGluMatchesFp64AlsoFarFromZero) {
  const at::Tensor x = leaf(random({3, 4, 2 * 19}, 1) * 30, at::kFloat);
  const at::Tensor dy = random({3, 4, 19}, 2);
  const at::Tensor y = swiglu(x);
  y.backward(dy);
  const at::Tensor x64 = leaf(x, at::kDouble);
  const at::Tensor y64 = composite::swiglu(x64);
  y64.backward(dy.to(at::kDouble));
  expect_near(y, y64, 1e-6, "y");
  expect_near(x.grad(), x64.grad(), 1e-6, "dx");
}

/// A projection to 32, of a matrix of 64 inputs.
Projection projection_of(at::ScalarType type, bool has_bias) {
  Projection made{.weight = trainable(random({32, 64}, 2)), .bias = {}};
  if (type != at::kFloat) made.weight.narrow = made.weight.value.detach().to(type);
  if (has_bias) made.bias.value = random({32}, 5).to(at::kFloat).set_requires_grad(true);
  return made;
}

void add_gradients(std::vector<at::Tensor>& to, const Projection& projection) {
  to.push_back(projection.weight.grad);
  if (projection.bias.exists()) to.push_back(projection.bias.value.grad());
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
}

TEST(OperationsTest, SwiGluWithItsProjectionHasTheBitsOfBoth) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const bool has_bias : {false, true}) {
      const auto learned = [&](const auto& operation) {
        const at::Tensor x = leaf(random({3, 40, 2 * 64}, 1) * 3, type);
        const Projection projection = projection_of(type, has_bias);
        const at::Tensor y = operation(projection, x);
        y.backward(random({3, 40, 32}, 3).to(type));
        std::vector made{y.detach(), x.grad()};
        add_gradients(made, projection);
        return made;
      };
      expect_equal(learned(project_swiglu), learned([](const auto& projection, const auto& x) {
                     return project(projection, swiglu(x));
                   }));
    }
  }
}

enum class Read { kBoth, kSum, kProjection };

/// What is made, and all gradients, where so much of it is read.
template <typename Operation>
std::vector<at::Tensor> with_norm(const Operation& operation, at::ScalarType type, bool adds,
                                  bool has_bias, Read read) {
  const at::Tensor x = leaf(random({3, 40, 64}, 1), type);
  const at::Tensor delta = adds ? leaf(random({3, 40, 64}, 3), type) : at::Tensor();
  const Weight norm = trainable(random({64}, 4));
  const Projection projection = projection_of(type, has_bias);
  const auto [sum, y] = operation(projection, norm, x, delta, 1e-5);
  at::Tensor loss = at::zeros({});
  if (read != Read::kProjection) loss = loss + (sum * random({3, 40, 64}, 6).to(type)).sum();
  if (read != Read::kSum) loss = loss + (y * y).sum();
  loss.backward();
  std::vector made{sum.detach(), y.detach(), x.grad(), norm.grad, projection.weight.grad};
  if (adds) made.push_back(delta.grad());
  if (has_bias && read != Read::kSum) made.push_back(projection.bias.value.grad());
  return made;
}

TEST(OperationsTest, RmsNormWithItsProjectionHasTheBitsOfBoth) {
  const auto apart = [](const Projection& projection, const Weight& norm, const at::Tensor& x,
                        const at::Tensor& delta, double epsilon) {
    const auto [sum, y] = add_rms_norm(norm, x, delta, epsilon);
    return std::pair(sum, project(projection, y));
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const bool adds : {false, true}) {
      for (const bool has_bias : {false, true}) {
        for (const Read read : {Read::kBoth, Read::kSum, Read::kProjection}) {
          expect_equal(with_norm(project_rms_norm, type, adds, has_bias, read),
                       with_norm(apart, type, adds, has_bias, read));
        }
      }
    }
  }
}

/// They are one node of the graph, which keeps nothing between them.
TEST(OperationsTest, RmsNormWithItsProjectionIsOneOperation) {
  const at::Tensor x = leaf(random({3, 40, 64}, 1), at::kFloat);
  Projection projection = projection_of(at::kFloat, /*has_bias=*/false);
  projection.weight.grad = at::Tensor();  // Nobody wants it.
  const auto [sum, y] = project_rms_norm(projection, trainable(random({64}, 4)), x, {}, 1e-5);
  EXPECT_EQ(sum.grad_fn(), y.grad_fn());
  y.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(OperationsTest, HeadNormLeavesValuesAlone) {
  const AttentionShape shape{2, 5, 4, 2, 6};
  const at::Tensor x = leaf(random({2, 5, shape.row_width()}, 1), at::kFloat);
  const Weight q = trainable(random({6}, 2));
  const Weight k = trainable(random({6}, 3));
  const at::Tensor dy = random({2, 5, shape.row_width()}, 4);
  const at::Tensor y = head_norm(shape, q, k, x, 1e-6);
  y.backward(dy);
  const at::Tensor x64 = leaf(x, at::kDouble);
  const at::Tensor q64 = leaf(q.value, at::kDouble);
  const at::Tensor k64 = leaf(k.value, at::kDouble);
  const at::Tensor y64 = composite::head_norm(shape, x64, q64, k64, 1e-6);
  y64.backward(dy.to(at::kDouble));
  expect_near(y, y64, 1e-5, "y");
  expect_near(x.grad(), x64.grad(), 1e-5, "dx");
  expect_near(q.grad, q64.grad(), 1e-5, "dq");
  expect_near(k.grad, k64.grad(), 1e-5, "dk");
}

class RotaryAttentionTest : public testing::TestWithParam<AttentionShape> {};

TEST_P(RotaryAttentionTest, MatchesFp64ForwardAndBackward) {
  const AttentionShape shape = GetParam();
  const std::vector<int64_t> size{shape.batch, shape.positions, shape.row_width()};
  const at::Tensor qkv = leaf(random(size, 1) * 2, at::kFloat);
  // With a window a part of each head turns alone.
  const int64_t turning = shape.window > 0 ? 2 : shape.head_size;
  const at::Tensor angles = random({shape.positions, turning / 2}, 2);
  const at::Tensor dy =
      random({shape.batch, shape.positions, shape.num_heads * shape.head_size}, 3);
  // The operation overwrites what it is given, here a copy.
  const at::Tensor y = rotary_attention(shape, qkv * 1.0, angles.cos(), angles.sin());
  y.backward(dy);

  const at::Tensor qkv64 = leaf(qkv, at::kDouble);
  const at::Tensor angles64 = angles.to(at::kDouble);
  const at::Tensor y64 =
      composite::attention(shape, composite::rotated(shape, qkv64, angles64.cos(), angles64.sin()));
  y64.backward(dy.to(at::kDouble));
  expect_near(y, y64, 1e-5, "y");
  expect_near(qkv.grad(), qkv64.grad(), 1e-5, "dqkv");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RotaryAttentionTest,
    testing::Values(AttentionShape{1, 1, 1, 1, 2}, AttentionShape{2, 64, 4, 4, 16},
                    AttentionShape{2, 65, 4, 2, 8}, AttentionShape{1, 200, 6, 2, 10},
                    AttentionShape{3, 17, 8, 1, 32}, AttentionShape{1, 40, 4, 2, 8, 100},
                    AttentionShape{2, 40, 4, 2, 8, 7}, AttentionShape{1, 130, 2, 1, 4, 1},
                    AttentionShape{1, 300, 4, 2, 8, 70}, AttentionShape{2, 200, 2, 2, 8, 64}));

TEST(VisibleTest, IsWhatLiesBeforeWithinTheWindow) {
  for (const int64_t window : {0, 1, 3, 10}) {
    const at::Tensor visible = composite::visible_TS(4, 9, window, at::kCPU);
    for (int64_t query = 0; query < 4; ++query) {
      for (int64_t key = 0; key < 9; ++key) {
        const int64_t distance = query + 5 - key;
        const bool wanted = distance >= 0 && (window == 0 || distance < window);
        EXPECT_EQ(visible[query][key].item<bool>(), wanted) << window << query << key;
      }
    }
  }
}

TEST(KernelsTest, SoftmaxLossAndItsGradientMatchFp64) {
  const at::Tensor logits = random({5, 1000}, 1) * 10;
  const at::Tensor targets = at::tensor({0, 999, 5, -100, 17}, at::kLong);
  const at::Tensor x64 = leaf(logits, at::kDouble);
  const at::Tensor square = x64.logsumexp(1).square() * (targets >= 0);
  const at::Tensor loss64 =
      at::cross_entropy_loss(x64, targets, {}, /*reduction=sum*/ 2) + square.sum() * 0.01;
  (loss64 * 0.25).backward();

  const at::Tensor work = logits.clone();
  const at::Tensor losses = at::zeros({5});
  const at::Tensor squares = at::zeros({5});
  softmax_loss({5, 1000}, work.mutable_data_ptr<float>(), targets.const_data_ptr<int64_t>(),
               {.z_loss = 0.01F, .scale = 0.25F}, losses.mutable_data_ptr<float>(),
               squares.mutable_data_ptr<float>(), work.mutable_data_ptr<float>());
  expect_near(losses.sum() + squares.sum() * 0.01, loss64, 1e-6, "loss");
  expect_near(work, x64.grad(), 1e-5, "gradient");
  EXPECT_EQ(losses[3].item<float>(), 0);
  EXPECT_EQ(work[3].abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace atl::model
