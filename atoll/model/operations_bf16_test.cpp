// The CPU kernels on BF16 against the composite operations in FP64 on the same rounded values,
// forward and backward. A value rounds by at most 2^-9 of it, and there are a few of them in a row.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/model/composite.h"
#include "atoll/model/kernels.h"
#include "atoll/model/operations.h"

namespace atl::model {
namespace {

constexpr double kTolerance = 1.2e-2;

at::Tensor random(std::vector<int64_t> shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

at::Tensor halves(std::vector<int64_t> shape, uint64_t seed) {
  return random(std::move(shape), seed).to(at::kBFloat16);
}

at::Tensor leaf(const at::Tensor& value, at::ScalarType type) {
  return value.detach().to(type, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true);
}

Weight vector(const at::Tensor& value) {
  Weight weight{.value = value, .grad = at::zeros_like(value), .stored = {}};
  weight.value.set_requires_grad(true);
  return weight;
}

/// A matrix of which products read a rounded copy.
Weight matrix(const at::Tensor& value) {
  Weight weight = vector(value);
  weight.narrow = value.detach().to(at::kBFloat16);
  return weight;
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, const char* what) {
  const at::Tensor wanted64 = wanted.detach().to(at::kDouble);
  const double error = (found.detach().to(at::kDouble) - wanted64).norm().item<double>();
  EXPECT_LE(error, kTolerance * wanted64.norm().item<double>()) << what;
}

void expect_type(const at::Tensor& x) { EXPECT_EQ(x.scalar_type(), at::kBFloat16); }

TEST(Bf16OperationsTest, LinearReadsTheRoundedMatrixAndAddsToAGradientInFp32) {
  for (const int64_t inputs : {8, 700}) {
    const at::Tensor x = leaf(halves({2, 50, inputs}, 1), at::kBFloat16);
    const Weight weight = matrix(random({130, inputs}, 2));
    weight.grad.fill_(1);  // It must be added to.
    const at::Tensor dy = halves({2, 50, 130}, 3);
    const at::Tensor y = linear(weight, x);
    y.backward(dy);
    expect_type(y);

    const at::Tensor x64 = leaf(x, at::kDouble);
    const at::Tensor w64 = leaf(weight.narrow, at::kDouble);
    const at::Tensor y64 = at::linear(x64, w64);
    y64.backward(dy.to(at::kDouble));
    expect_near(y, y64, "y");
    expect_near(x.grad(), x64.grad(), "dx");
    expect_near(weight.grad - 1, w64.grad(), "dw");
    EXPECT_EQ(weight.grad.scalar_type(), at::kFloat);
  }
}

TEST(Bf16OperationsTest, EmbeddingReadsRoundedRowsAndSumsInFp32) {
  const Weight weight = matrix(random({10, 70}, 1));
  const at::Tensor tokens = at::tensor({3, 3, 0, 9, 3, 1}, at::kLong).view({2, 3});
  const at::Tensor dy = halves({2, 3, 70}, 2);
  const at::Tensor x = embed(weight, tokens);
  x.backward(dy);
  EXPECT_TRUE(at::equal(x[1][0], weight.narrow[9]));
  const at::Tensor w64 = leaf(weight.value, at::kDouble);
  w64.index_select(0, tokens.view(-1)).view({2, 3, 70}).backward(dy.to(at::kDouble));
  EXPECT_TRUE(at::allclose(weight.grad.to(at::kDouble), w64.grad(), 1e-6, 1e-6));
}

TEST(Bf16OperationsTest, NormsMatchFp64) {
  for (const int64_t width : {5, 37, 96}) {
    const at::Tensor x = leaf(halves({1, 300, width}, 1), at::kBFloat16);
    const at::Tensor delta = leaf(halves({1, 300, width}, 2), at::kBFloat16);
    const Weight first = vector(random({width}, 3));
    const Weight second = vector(random({width}, 4));
    const at::Tensor dy = halves({1, 300, width}, 5);
    const auto [sum, y] = add_rms_norm(first, rms_norm(second, x, 1e-5), delta, 1e-5);
    const auto [same, forked] = add_rms_norm(second, sum, {}, 1e-5);
    (same * dy + y * dy + forked * dy).sum().backward();
    expect_type(forked);

    const at::Tensor x64 = leaf(x, at::kDouble);
    const at::Tensor delta64 = leaf(delta, at::kDouble);
    const at::Tensor first64 = leaf(first.value, at::kDouble);
    const at::Tensor second64 = leaf(second.value, at::kDouble);
    const at::Tensor dy64 = dy.to(at::kDouble);
    const at::Tensor sum64 = composite::rms_norm(x64, second64, 1e-5) + delta64;
    const at::Tensor y64 = composite::rms_norm(sum64, first64, 1e-5);
    (sum64 * dy64 + y64 * dy64 + composite::rms_norm(sum64, second64, 1e-5) * dy64)
        .sum()
        .backward();
    expect_near(sum, sum64, "sum");
    expect_near(y, y64, "y");
    expect_near(x.grad(), x64.grad(), "dx");
    expect_near(delta.grad(), delta64.grad(), "ddelta");
    expect_near(first.grad, first64.grad(), "dfirst");
    expect_near(second.grad, second64.grad(), "dsecond");
  }
}

TEST(Bf16OperationsTest, SwiGluMatchesFp64) {
  const at::Tensor x = leaf(halves({3, 4, 2 * 19}, 1) * 5, at::kBFloat16);
  const at::Tensor dy = halves({3, 4, 19}, 2);
  const at::Tensor y = swiglu(x);
  y.backward(dy);
  const at::Tensor x64 = leaf(x, at::kDouble);
  const at::Tensor y64 = composite::swiglu(x64);
  y64.backward(dy.to(at::kDouble));
  expect_near(y, y64, "y");
  expect_near(x.grad(), x64.grad(), "dx");
}

TEST(Bf16OperationsTest, HeadNormMatchesFp64) {
  const AttentionShape shape{2, 5, 4, 2, 6};
  const at::Tensor x = leaf(halves({2, 5, shape.row_width()}, 1), at::kBFloat16);
  const Weight q = vector(random({6}, 2));
  const Weight k = vector(random({6}, 3));
  const at::Tensor dy = halves({2, 5, shape.row_width()}, 4);
  const at::Tensor y = head_norm(shape, q, k, x, 1e-6);
  y.backward(dy);
  const at::Tensor x64 = leaf(x, at::kDouble);
  const at::Tensor q64 = leaf(q.value, at::kDouble);
  const at::Tensor k64 = leaf(k.value, at::kDouble);
  const at::Tensor y64 = composite::head_norm(shape, x64, q64, k64, 1e-6);
  y64.backward(dy.to(at::kDouble));
  expect_near(y, y64, "y");
  expect_near(x.grad(), x64.grad(), "dx");
  expect_near(q.grad, q64.grad(), "dq");
  expect_near(k.grad, k64.grad(), "dk");
}

class Bf16AttentionTest : public testing::TestWithParam<AttentionShape> {};

TEST_P(Bf16AttentionTest, MatchesFp64ForwardAndBackward) {
  AttentionShape shape = GetParam();
  shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_size));
  const at::Tensor qkv =
      leaf(halves({shape.batch, shape.positions, shape.row_width()}, 1) * 1.5, at::kBFloat16);
  // With a window, or an odd head, a part of each head turns alone.
  const bool is_partly = shape.window > 0 || shape.head_size % 2 != 0;
  const int64_t turning = is_partly ? 2 : shape.head_size;
  const at::Tensor angles = random({shape.positions, turning / 2}, 2);
  const at::Tensor dy =
      halves({shape.batch, shape.positions, shape.num_heads * shape.head_size}, 3);
  // The operation overwrites what it is given, here a copy.
  const at::Tensor y = rotary_attention(shape, qkv * 1.0, angles.cos(), angles.sin());
  y.backward(dy);
  expect_type(y);

  const at::Tensor qkv64 = leaf(qkv, at::kDouble);
  const at::Tensor angles64 = angles.to(at::kDouble);
  const at::Tensor y64 =
      composite::attention(shape, composite::rotated(shape, qkv64, angles64.cos(), angles64.sin()));
  y64.backward(dy.to(at::kDouble));
  expect_near(y, y64, "y");
  // By parts: values' gradients are much larger than the others.
  const auto part = [&](const at::Tensor& x, int64_t first, int64_t heads) {
    return x.narrow(2, first * shape.head_size, heads * shape.head_size);
  };
  const auto check = [&](int64_t first, int64_t heads, const char* what) {
    const at::Tensor wanted = part(qkv64.grad(), first, heads);
    const double error = (part(qkv.grad(), first, heads) - wanted).norm().item<double>();
    // Where a query sees itself alone these are zero, and what is left is rounding.
    EXPECT_LE(error, 2 * kTolerance * wanted.norm().item<double>() + 0.02) << what;
  };
  check(0, shape.num_heads, "dq");
  check(shape.num_heads, shape.num_kv_heads, "dk");
  check(shape.num_heads + shape.num_kv_heads, shape.num_kv_heads, "dv");
}

// The last has a head that no small product takes: it goes by FP32.
INSTANTIATE_TEST_SUITE_P(
    Shapes, Bf16AttentionTest,
    testing::Values(AttentionShape{1, 1, 1, 1, 2}, AttentionShape{2, 64, 4, 4, 16},
                    AttentionShape{2, 65, 4, 2, 8}, AttentionShape{1, 200, 6, 2, 10},
                    AttentionShape{3, 17, 8, 1, 32}, AttentionShape{1, 257, 4, 2, 64},
                    AttentionShape{1, 40, 4, 2, 8, 100}, AttentionShape{2, 40, 4, 2, 8, 7},
                    AttentionShape{1, 130, 2, 1, 4, 1}, AttentionShape{1, 301, 4, 2, 8, 70},
                    AttentionShape{2, 200, 2, 2, 8, 64}, AttentionShape{1, 90, 4, 2, 5}));

TEST(Bf16KernelsTest, SoftmaxLossWritesARoundedGradientAside) {
  at::Tensor logits = random({5, 1000}, 1) * 10;
  const at::Tensor targets = at::tensor({0, 999, 5, -100, 17}, at::kLong);
  const auto run = [&]<typename T>(const at::Tensor& work, T* dlogits) {
    const at::Tensor losses = at::zeros({2, 5});
    softmax_loss({5, 1000}, work.mutable_data_ptr<float>(), targets.const_data_ptr<int64_t>(),
                 {.z_loss = 0.01F, .scale = 0.25F}, losses[0].mutable_data_ptr<float>(),
                 losses[1].mutable_data_ptr<float>(), dlogits);
    return losses;
  };
  const at::Tensor wide = logits.clone();
  const at::Tensor wanted = run(wide, wide.mutable_data_ptr<float>());
  const at::Tensor narrow = at::full({5, 1000}, 7, at::kBFloat16);
  const at::Tensor found = run(logits, narrow.mutable_data_ptr<c10::BFloat16>());
  EXPECT_TRUE(at::equal(found, wanted));
  EXPECT_TRUE(at::equal(narrow, wide.to(at::kBFloat16)));
}

}  // namespace
}  // namespace atl::model
