// The kernels of logits: the loss with its gradient, and scores.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/model/kernels.h"
#include "atoll/model/simd.h"

namespace atl::model {
namespace {

// One row: returns log Z; the exponentials relative to the maximum are left in the row.
__attribute__((always_inline)) inline float exponentials(float* row, int64_t width, float& total) {
  float maximum = row[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < width; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < width; ++i) {
    const float e = fast_exp(row[i] - maximum);
    row[i] = e;
    sum += e;
  }
  total = sum;
  return maximum + std::log(sum);
}

template <typename T>
ATOLL_CLONES void softmax_loss_rows(int64_t count, int64_t width, float* logits,
                                    const int64_t* targets, const SoftmaxLoss& options,
                                    float* losses, float* squares, T* dlogits) {
  for (int64_t r = 0; r < count; ++r) {
    float* row = logits + r * width;
    T* drow = dlogits + r * width;
    const int64_t target = targets[r];
    if (target < 0) {
      losses[r] = 0;
      squares[r] = 0;
      if (options.scale != 0) std::fill_n(drow, width, narrow<T>(0));
      continue;
    }
    ATOLL_CHECK(target < width, "a target is not below the vocabulary");
    const float target_logit = row[target];
    float total = 0;
    const float log_partition = exponentials(row, width, total);
    losses[r] = log_partition - target_logit;
    squares[r] = log_partition * log_partition;
    if (options.scale == 0) continue;
    // d(lse)/d(logit) is the probability; the z-loss has d(lse^2) = 2 lse d(lse).
    const float factor = options.scale * (1.0F + 2.0F * options.z_loss * log_partition) / total;
    const float at_target = row[target] * factor - options.scale;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) drow[i] = narrow<T>(row[i] * factor);
    drow[target] = narrow<T>(at_target);
  }
}

/// The sum of exp(row[i] - maximum): in lanes, as many as the widest register has, and in parts
/// that are short enough for FP32.
ATOLL_CLONES double sum_of_exponentials(const float* row, int64_t width, float maximum) {
  constexpr int64_t kLanes = 16;
  constexpr int64_t kPart = 64 * kLanes;
  double total = 0;
  int64_t i = 0;
  while (i < width) {
    float lanes[kLanes] = {};
    const int64_t end = std::min(width, i + kPart);
    for (; i + kLanes <= end; i += kLanes) {
#pragma omp simd
      for (int64_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] += fast_exp(row[i + lane] - maximum);
    }
    for (int64_t lane = 0; i < end; ++i, ++lane) lanes[lane] += fast_exp(row[i] - maximum);
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

ATOLL_CLONES float largest_of(const float* row, int64_t width) {
  float maximum = row[0];
#pragma omp simd reduction(max : maximum)
  for (int64_t i = 0; i < width; ++i) maximum = row[i] > maximum ? row[i] : maximum;
  return maximum;
}

ATOLL_CLONES int64_t count_larger(const float* row, int64_t width, float value) {
  int64_t count = 0;
#pragma omp simd reduction(+ : count)
  for (int64_t i = 0; i < width; ++i) count += row[i] > value ? 1 : 0;
  return count;
}

}  // namespace

template <typename T>
void softmax_loss(Rows rows, float* logits, const int64_t* targets, const SoftmaxLoss& options,
                  float* losses, float* squares, T* dlogits) {
  at::parallel_for(0, rows.count, grain(rows.width), [&](int64_t begin, int64_t end) {
    softmax_loss_rows(end - begin, rows.width, logits + begin * rows.width, targets + begin,
                      options, losses + begin, squares + begin, dlogits + begin * rows.width);
  });
}

void score_rows(Rows rows, const float* logits, std::span<const RowTarget> targets,
                double* log_probabilities, int64_t* num_larger) {
  const auto count = static_cast<int64_t>(targets.size());
  at::parallel_for(0, count, grain(rows.width), [&](int64_t begin, int64_t end) {
    int64_t last_row = -1;  // Targets of one row often follow each other.
    float maximum = 0;
    double log_sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      const RowTarget& wanted = targets[static_cast<size_t>(i)];
      const float* const row = logits + wanted.row * rows.width;
      if (wanted.row != last_row) {
        last_row = wanted.row;
        maximum = largest_of(row, rows.width);
        log_sum = std::log(sum_of_exponentials(row, rows.width, maximum));
      }
      const float target = row[wanted.id];
      log_probabilities[i] = static_cast<double>(target) - static_cast<double>(maximum) - log_sum;
      num_larger[i] = count_larger(row, rows.width, target);
    }
  });
}

template void softmax_loss(Rows, float*, const int64_t*, const SoftmaxLoss&, float*, float*,
                           float*);
template void softmax_loss(Rows, float*, const int64_t*, const SoftmaxLoss&, float*, float*,
                           c10::BFloat16*);

}  // namespace atl::model
