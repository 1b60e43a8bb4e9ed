#include "atoll/train/adamw_kernel.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace atl::train {
namespace {

struct Buffers {
  at::Tensor values;
  at::Tensor gradients = at::zeros_like(values);
  at::Tensor means = at::zeros_like(values);
  at::Tensor squares = at::zeros_like(values);
};

AdamWSpan span_of(const Buffers& buffers) {
  return {.count = buffers.values.numel(),
          .values = buffers.values.mutable_data_ptr<float>(),
          .gradients = buffers.gradients.mutable_data_ptr<float>(),
          .means = buffers.means.mutable_data_ptr<float>(),
          .squares = buffers.squares.mutable_data_ptr<float>()};
}

/// The same in LibTorch's passes.
void update_by_libtorch(const Buffers& buffers, const AdamWUpdate& update) {
  if (update.gradient_scale != 1) at::Tensor(buffers.gradients).mul_(update.gradient_scale);
  at::_fused_adamw_({buffers.values}, {buffers.gradients}, {buffers.means}, {buffers.squares}, {},
                    {at::full({}, static_cast<double>(update.number), at::kFloat)}, update.lr,
                    update.beta1, update.beta2, update.weight_decay, update.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
  at::Tensor(buffers.gradients).zero_();
}

/// Of all magnitudes down to subnormal ones, a tenth of them zero.
at::Tensor some_gradients(int64_t count) {
  const at::Tensor exponents = at::rand({count}).mul(-44);
  const at::Tensor magnitudes = at::full({count}, 10.0F).pow(exponents);
  return at::randn({count}).mul(magnitudes).mul(at::rand({count}).gt(0.1));
}

/// On other processors LibTorch's vectors multiply and add apart, or as their compiler likes.
bool libtorch_fuses() { return at::get_cpu_capability().starts_with("AVX"); }

void expect_same(const at::Tensor& found, const at::Tensor& wanted, const char* what) {
  if (libtorch_fuses()) {
    EXPECT_TRUE(found.equal(wanted)) << what << ": " << found.ne(wanted).sum().item<int64_t>();
  } else {
    EXPECT_TRUE(at::allclose(found, wanted, 1e-5, 1e-7)) << what;
  }
}

/// Several updates, both ways.
void expect_libtorchs_bits(int64_t count, AdamWUpdate update) {
  const Buffers ours{.values = at::randn({count})};
  const Buffers libtorchs{.values = ours.values.clone()};
  for (update.number = 1; update.number <= 4; ++update.number) {
    update.lr *= 0.9;
    ours.gradients.copy_(some_gradients(count));
    libtorchs.gradients.copy_(ours.gradients);
    update.clears_gradients = update.number != 2;
    adamw(span_of(ours), update);
    if (!update.clears_gradients) {
      EXPECT_TRUE(ours.gradients.equal(libtorchs.gradients));
      ours.gradients.zero_();
    }
    update_by_libtorch(libtorchs, update);
    expect_same(ours.values, libtorchs.values, "values");
    expect_same(ours.means, libtorchs.means, "means");
    expect_same(ours.squares, libtorchs.squares, "squares");
    EXPECT_EQ(ours.gradients.count_nonzero().item<int64_t>(), 0);
  }
}

/// On one thread unless a test wants more: several on a busy machine wait for each other.
class AdamWKernelTest : public testing::Test {
 protected:
  AdamWKernelTest() { at::set_num_threads(1); }
  ~AdamWKernelTest() override {
    at::globalContext().setFlushDenormal(false);
    at::set_num_threads(num_threads_);
  }

 private:
  int num_threads_ = at::get_num_threads();
};

constexpr AdamWUpdate kUpdate = {.gradient_scale = 0.3,
                                 .lr = 1e-3,
                                 .weight_decay = 0.1,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8};
// Of all sizes beside a vector, and of blocks for one thread and for several.
constexpr int64_t kSizes[] = {1, 7, 8, 9, 15, 16, 31, 100, 1003, 16'391, 70'003};

TEST_F(AdamWKernelTest, HasTheBitsOfLibTorchsPasses) {
  at::manual_seed(1);
  for (const int64_t count : kSizes) {
    for (const double beta1 : {0.9, 0.5, 0.3}) {  // Above and below a half means have two forms.
      for (const double weight_decay : {0.0, 0.1}) {
        for (const double scale : {1.0, 0.1234567}) {
          SCOPED_TRACE(testing::Message() << count << " elements, beta1 " << beta1 << ", decay "
                                          << weight_decay << ", scale " << scale);
          AdamWUpdate update = kUpdate;
          update.gradient_scale = scale;
          update.weight_decay = weight_decay;
          update.beta1 = beta1;
          expect_libtorchs_bits(count, update);
        }
      }
    }
  }
}

// As in the program.
TEST_F(AdamWKernelTest, HasThemWhereSubnormalNumbersAreFlushed) {
  if (!at::globalContext().setFlushDenormal(true)) GTEST_SKIP() << "not known to this processor";
  at::manual_seed(2);
  for (const int64_t count : kSizes) expect_libtorchs_bits(count, kUpdate);
}

// LibTorch gives each thread a part of its own, with vectors of its own.
TEST_F(AdamWKernelTest, HasThemOnSeveralThreads) {
  at::manual_seed(5);
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    for (const int64_t count : {32'771, 70'003, 131'072}) expect_libtorchs_bits(count, kUpdate);
  }
}

TEST_F(AdamWKernelTest, HasTheSameBitsForAnyNumberOfThreads) {
  at::manual_seed(3);
  const at::Tensor values = at::randn({200'005});
  const at::Tensor gradients = some_gradients(values.numel());
  std::vector<at::Tensor> found;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    const Buffers buffers{.values = values.clone()};
    buffers.gradients.copy_(gradients);
    adamw(span_of(buffers), kUpdate);
    found.push_back(at::cat({buffers.values, buffers.means, buffers.squares}));
  }
  EXPECT_TRUE(found[1].equal(found[0]));
  EXPECT_TRUE(found[2].equal(found[0]));
}

}  // namespace
}  // namespace atl::train
