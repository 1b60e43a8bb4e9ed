// An update of 34 M parameters: norm, clip, AdamW, zeroed gradients. `passes` is LibTorch's kernels
// one after the other, `one_pass` the inner optimiser. Run with OMP_NUM_THREADS=1 for one core.
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <benchmark/benchmark.h>

#include "atoll/train/inner_optimizer.h"

namespace {

using atl::train::clip_factor;
using atl::train::gradient_norm;
using atl::train::OptimizerTarget;

constexpr int64_t kNumParameters = 34'000'000;
constexpr double kMaxNorm = 1;  // Far below the norm: gradients are scaled.
constexpr double kDecay = 0.1;
constexpr double kLr = 1e-3;

OptimizerTarget some_target() {
  return {.values_P = at::full({kNumParameters}, 0.02F),
          .gradients_P = at::full({kNumParameters}, 0.001F),
          .decayed = {{0, kNumParameters}},
          .hidden = {}};
}

void passes(benchmark::State& state) {
  const OptimizerTarget target = some_target();
  const at::Tensor mean_P = at::zeros_like(target.values_P);
  const at::Tensor square_P = at::zeros_like(target.values_P);
  const at::Tensor count = at::full({}, 0.0F);
  const atl::method::TrainOptions options;
  for (auto _ : state) {
    const double factor = clip_factor(gradient_norm(target.gradients_P) + 2, kMaxNorm);
    target.gradients_P.mul_(factor);
    count.add_(1);
    at::_fused_adamw_({target.values_P}, {target.gradients_P}, {mean_P}, {square_P}, {}, {count},
                      kLr, options.beta1, options.beta2, kDecay, options.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
    target.gradients_P.zero_();
  }
}

void one_pass(benchmark::State& state) {
  const OptimizerTarget target = some_target();
  const auto optimizer = atl::train::make_inner_optimizer({}, target);
  for (auto _ : state) {
    // Gradients are zero after the first update, and would not be scaled.
    const double factor = clip_factor(gradient_norm(target.gradients_P) + 2, kMaxNorm);
    optimizer->step({.lr = kLr, .weight_decay = kDecay, .gradient_scale = factor});
  }
}

}  // namespace

BENCHMARK(passes)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(one_pass)->Unit(benchmark::kMillisecond)->UseRealTime();
