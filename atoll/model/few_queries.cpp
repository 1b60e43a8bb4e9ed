#include "atoll/model/few_queries.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "atoll/model/simd.h"

namespace atl::model {
namespace {

constexpr int64_t kMostColumns = 8;

/// Memory of this thread whose values nobody reads before they are written.
float* scratch(int64_t size) {
  thread_local std::unique_ptr<float[]> memory;
  thread_local int64_t capacity = 0;
  if (size > capacity) {
    capacity = 2 * size;
    memory = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(capacity));
  }
  return memory.get();
}

ATOLL_CLONES float largest(const float* scores, int64_t count) {
  float found = -INFINITY;
#pragma omp simd reduction(max : found)
  for (int64_t i = 0; i < count; ++i) found = scores[i] > found ? scores[i] : found;
  return found;
}

ATOLL_CLONES void cap_scores(float cap, float* scores, int64_t count) {
  const float inverse = 1.0F / cap;
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = cap - 2 * cap / (fast_exp(2 * scores[i] * inverse) + 1.0F);
  }
}

ATOLL_CLONES void exponentiate(float* scores, int64_t count, float most) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) scores[i] = fast_exp(scores[i] - most);
}

/// In blocks of keys, each by itself and then to the sum.
float sum_of(const float* weights, int64_t first_key, int64_t count) {
  float sum = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t size = std::min(count - done, kSumBlock - (first_key + done) % kSumBlock);
    float part = 0;
    for (int64_t i = 0; i < size; ++i) part += weights[done + i];
    sum += part;
    done += size;
  }
  return sum;
}

class FewQueries {
 public:
  FewQueries(const HeadSizes& sizes, const AttendingRow& row, int64_t kv_head,
             const ProductKernel& kernel)
      : sizes_(sizes),
        row_(row),
        kernel_(kernel),
        kv_head_(kv_head),
        group_(sizes.num_heads / sizes.num_kv_heads),
        num_columns_(row.num_queries * group_) {
    const int64_t first_seen = row.num_keys - row.num_queries + 1 - sizes.window;
    first_key_ = sizes.window > 0 ? std::max<int64_t>(0, first_seen) : 0;
    num_keys_ = row.num_keys - first_key_;
    // A product writes whole lanes.
    stride_ = num_keys_ + kMaxLanes;
    queries_NM_ = scratch(num_columns_ * (sizes.head_size + 2 * stride_ + kMaxLanes));
    scores_MS_ = queries_NM_ + sizes.head_size * num_columns_;
    weights_SM_ = scores_MS_ + num_columns_ * stride_;
    out_ML_ = weights_SM_ + num_columns_ * stride_;
  }

  void attend() {
    gather_queries();
    score();
    for (int64_t column = 0; column < num_columns_; ++column) weigh_up(column);
    add_values();
  }

 private:
  int64_t head_of(int64_t column) const { return kv_head_ * group_ + column % group_; }
  /// Of which a product takes as many as it can at a time.
  int64_t columns_from(int64_t column) const {
    return std::min(kernel_.max_rows, num_columns_ - column);
  }

  void gather_queries() {
    for (int64_t column = 0; column < num_columns_; ++column) {
      const float* const from =
          row_.q + column / group_ * row_.q_stride + head_of(column) * sizes_.head_size;
      float* const to = queries_NM_ + column;
      for (int64_t n = 0; n < sizes_.head_size; ++n) to[n * num_columns_] = from[n] * sizes_.scale;
    }
  }

  void score() {
    const auto multiply = kernel_.multiply[static_cast<size_t>(row_.k.format)];
    for (int64_t key = first_key_; key < row_.num_keys;) {
      const int64_t end = std::min(row_.k.run_end(key, row_.num_keys), key + kernel_.lanes);
      for (int64_t column = 0; column < num_columns_; column += kernel_.max_rows) {
        multiply(columns_from(column), sizes_.head_size, queries_NM_ + column, num_columns_,
                 row_.k.at(key, kv_head_), row_.k.element_stride,
                 scores_MS_ + column * stride_ + (key - first_key_), stride_, false);
      }
      key = end;
    }
  }

  /// A column's scores to weights, 0 where its query does not see the key.
  void weigh_up(int64_t column) {
    const int64_t query = column / group_;
    const int64_t to = row_.num_keys - row_.num_queries + query + 1 - first_key_;
    const int64_t from = sizes_.window > 0 ? std::max<int64_t>(0, to - sizes_.window) : 0;
    float* const scores = scores_MS_ + column * stride_;
    if (sizes_.softcap > 0) cap_scores(sizes_.softcap, scores + from, to - from);
    const bool has_sink = sizes_.sinks_H != nullptr;
    const float sink = has_sink ? sizes_.sinks_H[head_of(column)] : 0;
    float most = largest(scores + from, to - from);
    if (has_sink) most = std::max(most, sink);
    exponentiate(scores + from, to - from, most);
    float sum = sum_of(scores + from, first_key_ + from, to - from);
    if (has_sink) sum += fast_exp(sink - most);
    sums_[column] = sum;
    std::fill(scores, scores + from, 0.0F);
    std::fill(scores + to, scores + num_keys_, 0.0F);
    for (int64_t key = 0; key < num_keys_; ++key) {
      weights_SM_[key * num_columns_ + column] = scores[key];
    }
  }

  void add_values() {
    const auto multiply = kernel_.multiply[static_cast<size_t>(row_.v.format)];
    for (int64_t n = 0; n < sizes_.head_size; n += kernel_.lanes) {
      const int64_t size = std::min(kernel_.lanes, sizes_.head_size - n);
      for (int64_t key = first_key_; key < row_.num_keys;) {
        const int64_t end = row_.v.run_end(key, row_.num_keys);
        // The last elements of a head may be fewer than lanes: what is behind them is no harm.
        for (int64_t column = 0; column < num_columns_; column += kernel_.max_rows) {
          multiply(columns_from(column), end - key,
                   weights_SM_ + (key - first_key_) * num_columns_ + column, num_columns_,
                   row_.v.at(key, kv_head_, n), row_.v.position_stride,
                   out_ML_ + column * kernel_.lanes, kernel_.lanes, key != first_key_);
        }
        key = end;
      }
      for (int64_t column = 0; column < num_columns_; ++column) {
        const float factor = 1.0F / sums_[column];
        float* const to =
            row_.out_THN +
            (column / group_ * sizes_.num_heads + head_of(column)) * sizes_.head_size + n;
        for (int64_t i = 0; i < size; ++i) to[i] = out_ML_[column * kernel_.lanes + i] * factor;
      }
    }
  }

  const HeadSizes& sizes_;
  const AttendingRow& row_;
  const ProductKernel& kernel_;
  int64_t kv_head_;
  int64_t group_;        // Query heads per key-value head.
  int64_t num_columns_;  // Queries times those.
  int64_t first_key_ = 0;
  int64_t num_keys_ = 0;
  int64_t stride_ = 0;
  float* queries_NM_ = nullptr;
  float* scores_MS_ = nullptr;
  float* weights_SM_ = nullptr;
  float* out_ML_ = nullptr;
  float sums_[kMostColumns] = {};
};

}  // namespace

bool are_few(const HeadSizes& sizes, const AttendingRow& row) {
  return row.k.pages != nullptr &&
         row.num_queries * (sizes.num_heads / sizes.num_kv_heads) <= kMostColumns;
}

void attend_few(const HeadSizes& sizes, const AttendingRow& row, int64_t kv_head,
                const ProductKernel& kernel) {
  FewQueries(sizes, row, kv_head, kernel).attend();
}

}  // namespace atl::model
