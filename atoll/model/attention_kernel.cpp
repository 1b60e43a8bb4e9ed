#include "atoll/model/attention_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/model/attention_tile.h"
#include "atoll/model/simd.h"

// Part of every LibTorch for the CPU that was built with a BLAS; weak, so that one without links.
extern "C" __attribute__((weak)) void sgemm_(const char* transa, const char* transb, const int* m,
                                             const int* n, const int* k, const float* alpha,
                                             const float* a, const int* lda, const float* b,
                                             const int* ldb, const float* beta, float* c,
                                             const int* ldc);

namespace atl::model {
namespace {

/// A row-major matrix, or its transpose, inside a larger one.
struct Matrix {
  const float* data = nullptr;
  int64_t stride = 0;
  bool transposed = false;
};

/// target (m, n; row-major) = alpha * a (m, k) * b (k, n) + beta * target. BLAS counts columns
/// first, so it is asked for the transpose: b^T a^T.
void multiply(int64_t m, int64_t n, int64_t k, float alpha, Matrix a, Matrix b, float beta,
              float* target, int64_t stride) {
  const int m_int = static_cast<int>(m);
  const int n_int = static_cast<int>(n);
  const int k_int = static_cast<int>(k);
  const int a_stride = static_cast<int>(a.stride);
  const int b_stride = static_cast<int>(b.stride);
  const int target_stride = static_cast<int>(stride);
  sgemm_(b.transposed ? "T" : "N", a.transposed ? "T" : "N", &n_int, &m_int, &k_int, &alpha, b.data,
         &b_stride, a.data, &a_stride, &beta, target, &target_stride);
}

/// Turns the scores into probabilities times their row's sum, which is written to `sums`; `maxima`
/// get the maxima. What a query may not see becomes 0.
ATOLL_CLONES void exponentials(const Tile& tile, float* scores, float* maxima, float* sums) {
  for (int64_t i = 0; i < tile.num_queries; ++i) {
    float* row = scores + i * tile.num_keys;
    const int64_t from = tile.seen_from(i);
    const int64_t to = tile.seen_to(i);
    float maximum = row[from];
#pragma omp simd reduction(max : maximum)
    for (int64_t j = from; j < to; ++j) maximum = row[j] > maximum ? row[j] : maximum;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = from; j < to; ++j) {
      const float e = fast_exp(row[j] - maximum);
      row[j] = e;
      sum += e;
    }
    std::fill(row, row + from, 0.0F);
    std::fill(row + to, row + tile.num_keys, 0.0F);
    maxima[i] = maximum;
    sums[i] = sum;
  }
}

ATOLL_CLONES void divide_rows(int64_t count, int64_t width, int64_t stride, const float* divisors,
                              float* values) {
  for (int64_t i = 0; i < count; ++i) {
    const float factor = 1.0F / divisors[i];
    float* row = values + i * stride;
#pragma omp simd
    for (int64_t n = 0; n < width; ++n) row[n] *= factor;
  }
}

/// scores -> probabilities, and dprobabilities -> dscores = p (dp - <out, dout>).
ATOLL_CLONES void softmax_backward(const Tile& tile, const float* log_sums, const float* out,
                                   const float* dout, int64_t out_stride, int64_t head_size,
                                   float* scores, float* dscores) {
  for (int64_t i = 0; i < tile.num_queries; ++i) {
    float dot = 0;
    const float* out_row = out + i * out_stride;
    const float* dout_row = dout + i * out_stride;
#pragma omp simd reduction(+ : dot)
    for (int64_t n = 0; n < head_size; ++n) dot += out_row[n] * dout_row[n];
    float* p = scores + i * tile.num_keys;
    float* dp = dscores + i * tile.num_keys;
    const int64_t from = tile.seen_from(i);
    const int64_t to = tile.seen_to(i);
    const float log_sum = log_sums[i];
#pragma omp simd
    for (int64_t j = from; j < to; ++j) {
      const float probability = fast_exp(p[j] - log_sum);
      p[j] = probability;
      dp[j] = probability * (dp[j] - dot);
    }
    for (float* row : {p, dp}) {
      std::fill(row, row + from, 0.0F);
      std::fill(row + to, row + tile.num_keys, 0.0F);
    }
  }
}

/// Where one (row, head) lies in the arrays.
struct Head {
  Matrix q, k, v, k_transposed, v_transposed;
  int64_t qkv_stride = 0;
  int64_t out_stride = 0;
  int64_t q_offset = 0, k_offset = 0, v_offset = 0;  // In qkv and dqkv.
  int64_t out_offset = 0;
  int64_t log_sum_offset = 0;
};

Head locate(const AttentionShape& shape, const float* qkv, int64_t row, int64_t head) {
  const int64_t kv_head = head / (shape.num_heads / shape.num_kv_heads);
  const int64_t width = shape.row_width();
  const int64_t start = row * shape.positions * width;
  Head at;
  at.qkv_stride = width;
  at.out_stride = shape.num_heads * shape.head_size;
  at.q_offset = start + head * shape.head_size;
  at.k_offset = start + (shape.num_heads + kv_head) * shape.head_size;
  at.v_offset = at.k_offset + shape.num_kv_heads * shape.head_size;
  at.out_offset = row * shape.positions * at.out_stride + head * shape.head_size;
  at.log_sum_offset = (row * shape.num_heads + head) * shape.positions;
  at.q = {qkv + at.q_offset, width, false};
  at.k = {qkv + at.k_offset, width, false};
  at.v = {qkv + at.v_offset, width, false};
  at.k_transposed = {at.k.data, width, true};
  at.v_transposed = {at.v.data, width, true};
  return at;
}

Matrix rows_from(Matrix matrix, int64_t row) {
  matrix.data += row * matrix.stride;
  return matrix;
}

void forward_tile(const AttentionShape& shape, const Head& head, const Tile& tile, float* out,
                  float* log_sums, std::vector<float>& scores) {
  const auto& [begin, queries, first_key, keys, window] = tile;
  const int64_t size = shape.head_size;
  scores.resize(static_cast<size_t>(kTile * shape.positions));
  const Matrix q = rows_from(head.q, begin);
  multiply(queries, keys, size, shape.scale, q, rows_from(head.k_transposed, first_key), 0,
           scores.data(), keys);
  float maxima[kTile];
  float sums[kTile];
  exponentials(tile, scores.data(), maxima, sums);
  float* target = out + head.out_offset + begin * head.out_stride;
  multiply(queries, size, keys, 1, {scores.data(), keys, false}, rows_from(head.v, first_key), 0,
           target, head.out_stride);
  divide_rows(queries, size, head.out_stride, sums, target);
  for (int64_t i = 0; i < queries; ++i) {
    log_sums[head.log_sum_offset + begin + i] = maxima[i] + std::log(sums[i]);
  }
}

/// What a backward pass reads and writes.
struct Backward {
  const float* out;
  const float* dout;
  const float* log_sums;
  float* dqkv;
};

/// Zeros the gradients of the head's keys and values.
void clear_kv(const AttentionShape& shape, const Head& head, float* dqkv) {
  for (const int64_t offset : {head.k_offset, head.v_offset}) {
    for (int64_t t = 0; t < shape.positions; ++t) {
      std::fill_n(dqkv + offset + t * head.qkv_stride, shape.head_size, 0.0F);
    }
  }
}

/// Adds to the gradients of keys and values, and writes those of the tile's queries.
void backward_tile(const AttentionShape& shape, const Head& head, const Backward& arrays,
                   const Tile& tile, std::vector<float>& scores, std::vector<float>& dscores) {
  const auto& [begin, queries, first_key, keys, window] = tile;
  const int64_t size = shape.head_size;
  const float scale = shape.scale;
  scores.resize(static_cast<size_t>(kTile * shape.positions));
  dscores.resize(scores.size());
  const int64_t out_offset = head.out_offset + begin * head.out_stride;
  const int64_t stride = head.qkv_stride;
  const Matrix q = rows_from(head.q, begin);
  const Matrix dout{arrays.dout + out_offset, head.out_stride, false};
  multiply(queries, keys, size, scale, q, rows_from(head.k_transposed, first_key), 0, scores.data(),
           keys);
  multiply(queries, keys, size, 1, dout, rows_from(head.v_transposed, first_key), 0, dscores.data(),
           keys);
  softmax_backward(tile, arrays.log_sums + head.log_sum_offset + begin, arrays.out + out_offset,
                   dout.data, head.out_stride, size, scores.data(), dscores.data());
  const int64_t first_row = first_key * stride;
  multiply(keys, size, queries, 1, {scores.data(), keys, true}, dout, 1,
           arrays.dqkv + head.v_offset + first_row, stride);
  multiply(keys, size, queries, scale, {dscores.data(), keys, true}, q, 1,
           arrays.dqkv + head.k_offset + first_row, stride);
  multiply(queries, size, keys, scale, {dscores.data(), keys, false}, rows_from(head.k, first_key),
           0, arrays.dqkv + head.q_offset + begin * stride, stride);
}

}  // namespace

bool attention_kernel_available() { return &sgemm_ != nullptr; }

void attention_forward(const AttentionShape& shape, const float* qkv_BTF, float* out_BTHN,
                       float* log_sums_BHT) {
  ATOLL_CHECK(attention_kernel_available());
  at::parallel_for(0, shape.batch * shape.num_heads, 1, [&](int64_t first, int64_t last) {
    std::vector<float> scores;
    for (int64_t index = first; index < last; ++index) {
      const Head head = locate(shape, qkv_BTF, index / shape.num_heads, index % shape.num_heads);
      for (int64_t begin = 0; begin < shape.positions; begin += kTile) {
        forward_tile(shape, head, tile_at(shape, begin), out_BTHN, log_sums_BHT, scores);
      }
    }
  });
}

void attention_backward(const AttentionShape& shape, const float* qkv_BTF, const float* out_BTHN,
                        const float* dout_BTHN, const float* log_sums_BHT, float* dqkv_BTF) {
  ATOLL_CHECK(attention_kernel_available());
  const Backward arrays{out_BTHN, dout_BTHN, log_sums_BHT, dqkv_BTF};
  const int64_t group = shape.num_heads / shape.num_kv_heads;
  const int64_t last_tile = (shape.positions - 1) / kTile * kTile;
  at::parallel_for(0, shape.batch * shape.num_kv_heads, 1, [&](int64_t first, int64_t last) {
    std::vector<float> scores;
    std::vector<float> dscores;
    for (int64_t index = first; index < last; ++index) {
      const int64_t row = index / shape.num_kv_heads;
      const int64_t kv_head = index % shape.num_kv_heads;
      clear_kv(shape, locate(shape, qkv_BTF, row, kv_head * group), dqkv_BTF);
      for (int64_t member = 0; member < group; ++member) {
        const Head head = locate(shape, qkv_BTF, row, kv_head * group + member);
        for (int64_t begin = last_tile; begin >= 0; begin -= kTile) {
          backward_tile(shape, head, arrays, tile_at(shape, begin), scores, dscores);
        }
      }
    }
  });
}

}  // namespace atl::model
