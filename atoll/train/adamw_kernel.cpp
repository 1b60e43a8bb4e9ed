#include "atoll/train/adamw_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/clones.h"

namespace atl::train {
namespace {

/// Elements of LibTorch's vectors.
constexpr int64_t kLanes = 8;
/// Elements per task: what a thread starts with are whole cache lines, and handing it out costs
/// nothing.
constexpr int64_t kBlock = 16'384;
static_assert(kBlock % kLanes == 0, "only the last block has elements that fill no vector");

/// An update's numbers as FP32 needs them.
struct Factors {
  float gradient;  // The clip's.
  float value;     // What decay leaves.
  float mean;      // The gradient's part in its mean, or of means above a half minus the mean's,
  bool from_gradient;  // added to the gradient: each form is exact at its end.
  float square;
  float square_of_gradient;
  float root_of_correction;
  float eps;
  float step;
  bool clears_gradients;
};

Factors factors_of(const AdamWUpdate& update) {
  const auto number = static_cast<double>(update.number);
  const auto mean = static_cast<float>(1 - update.beta1);
  const bool from_gradient = mean >= 0.5F;
  return {.gradient = static_cast<float>(update.gradient_scale),
          // Fused in FP64 as LibTorch's compiler does it; no decay is exactly 1.
          .value = static_cast<float>(std::fma(-update.lr, update.weight_decay, 1.0)),
          .mean = from_gradient ? mean - 1 : mean,
          .from_gradient = from_gradient,
          .square = static_cast<float>(update.beta2),
          .square_of_gradient = static_cast<float>(1 - update.beta2),
          .root_of_correction = static_cast<float>(std::sqrt(1 - std::pow(update.beta2, number))),
          .eps = static_cast<float>(update.eps),
          .step = static_cast<float>(update.lr / (1 - std::pow(update.beta1, number))),
          .clears_gradients = update.clears_gradients};
}

/// Elements [begin, end). Which of the two products in a square is fused with their sum is
/// LibTorch's choice in its vectors, its compiler's behind them.
template <bool kIsTail, bool kClears>
ATOLL_INLINE void update_elements(const AdamWSpan& span, const Factors& factors, int64_t begin,
                                  int64_t end) {
  float* const values = span.values;
  float* const gradients = span.gradients;
  float* const means = span.means;
  float* const squares = span.squares;
  const Factors f = factors;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float gradient = gradients[i] * f.gradient;
    const float before = means[i];
    const float mean = std::fma(f.mean, gradient - before, f.from_gradient ? gradient : before);
    const float part = f.square_of_gradient * gradient;
    const float square = kIsTail ? std::fma(squares[i], f.square, part * gradient)
                                 : std::fma(part, gradient, squares[i] * f.square);
    const float root = std::sqrt(square) / f.root_of_correction + f.eps;
    if (kClears) gradients[i] = 0;
    means[i] = mean;
    squares[i] = square;
    values[i] = values[i] * f.value - f.step * mean / root;
  }
}

template <bool kClears>
ATOLL_INLINE void update_all(const AdamWSpan& span, const Factors& factors, int64_t begin,
                             int64_t end) {
  const int64_t tail = end - (end - begin) % kLanes;
  update_elements<false, kClears>(span, factors, begin, tail);
  update_elements<true, kClears>(span, factors, tail, end);
}

ATOLL_CLONES void update_range(const AdamWSpan& span, const Factors& factors, int64_t begin,
                               int64_t end) {
  if (factors.clears_gradients) {
    update_all<true>(span, factors, begin, end);
  } else {
    update_all<false>(span, factors, begin, end);
  }
}

}  // namespace

void adamw(const AdamWSpan& span, const AdamWUpdate& update) {
  const Factors factors = factors_of(update);
  const int64_t num_blocks = (span.count + kBlock - 1) / kBlock;
  at::parallel_for(0, num_blocks, /*grain_size=*/2, [&](int64_t begin, int64_t end) {
    update_range(span, factors, begin * kBlock, std::min(end * kBlock, span.count));
  });
}

}  // namespace atl::train
