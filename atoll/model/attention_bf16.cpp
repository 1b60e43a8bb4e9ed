// attention_kernel.h on BF16: tiles of small products, which sum in FP32. The way back works on
// transposed scores (keys, queries): what belongs to a
// query then lies in vectors, and probabilities are a first factor as they are.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "atoll/model/attention_kernel.h"
#include "atoll/model/attention_tile.h"
#include "atoll/model/simd.h"
#include "atoll/model/small_products.h"

namespace atl::model {
namespace {

/// x (count, width) times `factor`.
ATOLL_CLONES void write_rows(const float* x, int64_t count, int64_t width, float factor,
                             int64_t stride, Half* out) {
  for (int64_t row = 0; row < count; ++row) {
    const float* const from = x + row * width;
    Half* const to = out + row * stride;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) to[i] = narrow<Half>(from[i] * factor);
  }
}

/// The transpose of x (width, kTile) times `factor`, of which `count` columns are there.
ATOLL_CLONES void write_columns(const float* x, int64_t count, int64_t width, float factor,
                                int64_t stride, Half* out) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t n = 0; n < width; ++n) {
      out[i * stride + n] = narrow<Half>(x[n * kTile + i] * factor);
    }
  }
}

/// One (row, key-value head): where it lies, and copies of its keys and values as products read
/// them. A thread has one, for all that it does.
class KeysAndValues {
 public:
  explicit KeysAndValues(const AttentionShape& shape)
      : shape_(shape), size_(shape.head_size), padded_(even(shape.positions)) {}

  void go_to(const Half* qkv, int64_t row, int64_t kv_head) {
    const int64_t width = shape_.row_width();
    const int64_t offset = row * shape_.positions * width;
    k_offset = offset + (shape_.num_heads + kv_head) * size_;
    v_offset = k_offset + shape_.num_kv_heads * size_;
    k = {qkv + k_offset, width};
    v = {qkv + v_offset, width};
  }
  void pack_forwards() {
    k_transposed.resize(static_cast<size_t>(padded_ * size_));
    v_pairs.resize(k_transposed.size());
    transposed_in_pairs(k, shape_.positions, padded_, size_, k_transposed.data());
    in_pairs(v, shape_.positions, padded_, size_, v_pairs.data());
  }
  void pack_backwards() {
    // As long as a tile's keys may be read from an odd place on.
    k_columns_stride = padded_ + 2;
    k_columns.resize(static_cast<size_t>(k_columns_stride * size_));
    transposed(k, shape_.positions, size_, k_columns_stride, k_columns.data());
  }

  HalfRows k, v;
  int64_t k_offset = 0, v_offset = 0;  // In qkv and dqkv.
  std::vector<Half> k_transposed;      // (N, keys), a second factor.
  std::vector<Half> v_pairs;           // (keys, N), likewise.
  std::vector<Half> k_columns;         // (N, keys), a first factor.
  int64_t k_columns_stride = 0;
  int64_t padded() const { return padded_; }

 private:
  AttentionShape shape_;
  int64_t size_;
  int64_t padded_;
};

/// Where a head's queries begin in qkv, and its part of what attention gives.
struct QueryHead {
  int64_t q_offset = 0;
  int64_t out_offset = 0;
  int64_t log_sum_offset = 0;
};

QueryHead locate(const AttentionShape& shape, int64_t row, int64_t head) {
  const int64_t size = shape.head_size;
  return {.q_offset = row * shape.positions * shape.row_width() + head * size,
          .out_offset = (row * shape.positions * shape.num_heads + head) * size,
          .log_sum_offset = (row * shape.num_heads + head) * shape.positions};
}

/// Scores (queries, keys that are `stride` apart) to probabilities times their row's sum. What a
/// query may not see, and the columns from num_keys to `padded`, become 0.
ATOLL_CLONES void exponentials(const Tile& tile, float scale, int64_t stride, int64_t padded,
                               float* scores, Half* probabilities, float* sums, float* log_sums) {
  for (int64_t i = 0; i < tile.num_queries; ++i) {
    float* const row = scores + i * stride;
    Half* const to_row = probabilities + i * padded;
    const int64_t from = tile.seen_from(i);
    const int64_t to = tile.seen_to(i);
    float maximum = row[from];
#pragma omp simd reduction(max : maximum)
    for (int64_t j = from; j < to; ++j) maximum = row[j] > maximum ? row[j] : maximum;
    const float most = maximum * scale;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = from; j < to; ++j) {
      const float e = fast_exp(row[j] * scale - most);
      to_row[j] = narrow<Half>(e);
      sum += e;
    }
    std::memset(to_row, 0, static_cast<size_t>(from) * sizeof(Half));
    std::memset(to_row + to, 0, static_cast<size_t>(padded - to) * sizeof(Half));
    sums[i] = sum;
    log_sums[i] = most + std::log(sum);
  }
}

class Forward {
 public:
  Forward(const AttentionShape& shape, const Half* qkv, Half* out, float* log_sums)
      : shape_(shape), qkv_(qkv), out_(out), log_sums_(log_sums), kv_(shape) {
    const auto size = static_cast<size_t>(kTile * kv_.padded());
    scores_.resize(size);
    probabilities_.resize(size);
    result_.resize(static_cast<size_t>(kTile * shape.head_size));
  }

  void run(int64_t row, int64_t kv_head) {
    const int64_t group = shape_.num_heads / shape_.num_kv_heads;
    kv_.go_to(qkv_, row, kv_head);
    kv_.pack_forwards();
    for (int64_t member = 0; member < group; ++member) {
      const QueryHead head = locate(shape_, row, kv_head * group + member);
      for (int64_t begin = 0; begin < shape_.positions; begin += kTile) run(head, begin);
    }
  }

 private:
  void run(const QueryHead& head, int64_t begin) {
    Tile tile = tile_at(shape_, begin);
    tile.num_keys += tile.first_key % 2;  // Pairs of values begin at even places.
    tile.first_key -= tile.first_key % 2;
    const int64_t size = shape_.head_size;
    const int64_t keys = even(tile.num_keys);
    const HalfRows q{qkv_ + head.q_offset + begin * shape_.row_width(), shape_.row_width()};
    multiply(tile.num_queries, keys, size, q,
             {kv_.k_transposed.data() + 2 * tile.first_key, kv_.padded()}, scores_.data());
    float sums[kTile];
    exponentials(tile, shape_.scale, keys, keys, scores_.data(), probabilities_.data(), sums,
                 log_sums_ + head.log_sum_offset + begin);
    multiply(tile.num_queries, size, keys, {probabilities_.data(), keys},
             {kv_.v_pairs.data() + tile.first_key * size, size}, result_.data());
    const int64_t stride = shape_.num_heads * size;
    Half* const out = out_ + head.out_offset + begin * stride;
    for (int64_t i = 0; i < tile.num_queries; ++i) {
      write_rows(result_.data() + i * size, 1, size, 1 / sums[i], stride, out + i * stride);
    }
  }

  const AttentionShape shape_;
  const Half* qkv_;
  Half* out_;
  float* log_sums_;
  KeysAndValues kv_;
  std::vector<float> scores_, result_;
  std::vector<Half> probabilities_;
};

/// <out, dout> of each query.
ATOLL_CLONES void dots_of(const Half* out, const Half* dout, int64_t count, int64_t width,
                          int64_t stride, float* dots) {
  for (int64_t i = 0; i < count; ++i) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t n = 0; n < width; ++n) {
      dot += widen(out[i * stride + n]) * widen(dout[i * stride + n]);
    }
    dots[i] = dot;
  }
}

/// What a query's column of scores is to become.
struct Columns {
  float log_sums[kTile] = {};
  float dots[kTile] = {};
};

/// One key's row of scores and of dprobabilities to probabilities and dscores (without scale), of
/// the queries [from, to); the others get 0.
ATOLL_INLINE void softmax_backward_row(const Columns& columns, float scale, int64_t from,
                                       int64_t to, const float* scores, const float* dprobabilities,
                                       Half* probabilities, Half* dscores) {
#pragma omp simd
  for (int64_t i = 0; i < kTile; ++i) {
    const float p = fast_exp(scores[i] * scale - columns.log_sums[i]);
    const float ds = p * (dprobabilities[i] - columns.dots[i]);
    const bool is_seen = i >= from && i < to;
    probabilities[i] = narrow<Half>(is_seen ? p : 0.0F);
    dscores[i] = narrow<Half>(is_seen ? ds : 0.0F);
  }
}

/// For all keys (keys, kTile); dscores also as a second factor, for which keys are padded to even.
ATOLL_CLONES void softmax_backward(const Tile& tile, const Columns& columns, float scale,
                                   const float* scores, const float* dprobabilities,
                                   Half* probabilities, Half* dscores, Half* dscores_in_pairs) {
  auto* const words = reinterpret_cast<uint32_t*>(dscores_in_pairs);
  for (int64_t j = 0; j < tile.num_keys; ++j) {
    const int64_t key = tile.first_key + j;
    const int64_t from = std::max<int64_t>(key - tile.begin, 0);
    const int64_t to = std::min(tile.num_queries, key + tile.window - tile.begin);
    softmax_backward_row(columns, scale, from, to, scores + j * kTile, dprobabilities + j * kTile,
                         probabilities + j * kTile, dscores + j * kTile);
  }
  if (tile.num_keys % 2 != 0) std::memset(dscores + tile.num_keys * kTile, 0, kTile * sizeof(Half));
  for (int64_t j = 0; j < tile.num_keys; j += 2) {
    const Half* const low = dscores + j * kTile;
    uint32_t* const target = words + j / 2 * kTile;
#pragma omp simd
    for (int64_t i = 0; i < kTile; ++i) target[i] = word_of(low[i], low[kTile + i]);
  }
}

/// What a backward pass reads and writes.
struct BackwardArrays {
  const Half* qkv;
  const Half* out;
  const Half* dout;
  const float* log_sums;
  Half* dqkv;
};

class Backward {
 public:
  Backward(const AttentionShape& shape, const BackwardArrays& arrays)
      : shape_(shape), arrays_(arrays), kv_(shape) {
    const auto size = static_cast<size_t>(kTile * (kv_.padded() + 2));
    const auto of_tile = static_cast<size_t>(kTile * shape.head_size);
    for (auto* floats : {&scores_, &dprobabilities_}) floats->resize(size);
    for (auto* halves : {&probabilities_, &dscores_, &dscores_pairs_}) halves->resize(size);
    for (auto* halves : {&q_pairs_, &q_transposed_, &dout_pairs_, &dout_transposed_}) {
      halves->resize(of_tile);
    }
    dq_.resize(of_tile);
    for (auto* sums : {&dk_, &dv_}) {
      sums->resize(static_cast<size_t>(shape.positions * shape.head_size));
    }
  }

  void run(int64_t row, int64_t kv_head) {
    const int64_t group = shape_.num_heads / shape_.num_kv_heads;
    kv_.go_to(arrays_.qkv, row, kv_head);
    kv_.pack_backwards();
    std::ranges::fill(dk_, 0.0F);
    std::ranges::fill(dv_, 0.0F);
    for (int64_t member = 0; member < group; ++member) {
      const QueryHead head = locate(shape_, row, kv_head * group + member);
      for (int64_t begin = 0; begin < shape_.positions; begin += kTile) run(head, begin);
    }
    const int64_t size = shape_.head_size;
    const int64_t width = shape_.row_width();
    write_rows(dk_.data(), shape_.positions, size, shape_.scale, width,
               arrays_.dqkv + kv_.k_offset);
    write_rows(dv_.data(), shape_.positions, size, 1, width, arrays_.dqkv + kv_.v_offset);
  }

 private:
  void run(const QueryHead& head, int64_t begin) {
    const Tile tile = tile_at(shape_, begin);
    const int64_t size = shape_.head_size;
    const int64_t width = shape_.row_width();
    const int64_t out_stride = shape_.num_heads * size;
    const int64_t queries = tile.num_queries;
    const HalfRows q{arrays_.qkv + head.q_offset + begin * width, width};
    const HalfRows dout{arrays_.dout + head.out_offset + begin * out_stride, out_stride};
    in_pairs(q, queries, kTile, size, q_pairs_.data());
    in_pairs(dout, queries, kTile, size, dout_pairs_.data());
    transposed_in_pairs(q, queries, kTile, size, q_transposed_.data());
    transposed_in_pairs(dout, queries, kTile, size, dout_transposed_.data());
    Columns columns;
    std::copy_n(arrays_.log_sums + head.log_sum_offset + begin, queries, columns.log_sums);
    dots_of(arrays_.out + head.out_offset + begin * out_stride, dout.data, queries, size,
            out_stride, columns.dots);
    multiply(tile.num_keys, kTile, size, kv_.k.from(tile.first_key), {q_transposed_.data(), kTile},
             scores_.data());
    multiply(tile.num_keys, kTile, size, kv_.v.from(tile.first_key),
             {dout_transposed_.data(), kTile}, dprobabilities_.data());
    softmax_backward(tile, columns, shape_.scale, scores_.data(), dprobabilities_.data(),
                     probabilities_.data(), dscores_.data(), dscores_pairs_.data());
    float* const dk = dk_.data() + tile.first_key * size;
    float* const dv = dv_.data() + tile.first_key * size;
    multiply(tile.num_keys, size, kTile, {probabilities_.data(), kTile}, {dout_pairs_.data(), size},
             dv, /*accumulates=*/true);
    multiply(tile.num_keys, size, kTile, {dscores_.data(), kTile}, {q_pairs_.data(), size}, dk,
             /*accumulates=*/true);
    multiply(size, kTile, even(tile.num_keys),
             {kv_.k_columns.data() + tile.first_key, kv_.k_columns_stride},
             {dscores_pairs_.data(), kTile}, dq_.data());
    write_columns(dq_.data(), queries, size, shape_.scale, width,
                  arrays_.dqkv + head.q_offset + begin * width);
  }

  const AttentionShape shape_;
  const BackwardArrays arrays_;
  KeysAndValues kv_;
  std::vector<float> scores_, dprobabilities_, dq_, dk_, dv_;
  std::vector<Half> probabilities_, dscores_, dscores_pairs_;
  std::vector<Half> q_pairs_, q_transposed_, dout_pairs_, dout_transposed_;
};

/// Each thread makes a Worker and gives it its share of (row, key-value head).
template <typename Worker, typename... Arguments>
void share_out(const AttentionShape& shape, const Arguments&... arguments) {
  at::parallel_for(0, shape.batch * shape.num_kv_heads, 1, [&](int64_t first, int64_t last) {
    const SmallProducts small;
    Worker worker(shape, arguments...);
    for (int64_t index = first; index < last; ++index) {
      worker.run(index / shape.num_kv_heads, index % shape.num_kv_heads);
    }
  });
}

std::vector<float> widened(const Half* x, int64_t count) {
  std::vector<float> wide(static_cast<size_t>(count));
  at::parallel_for(0, count, 32'768, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) wide[static_cast<size_t>(i)] = widen(x[i]);
  });
  return wide;
}

void write_narrowed(const std::vector<float>& x, Half* out) {
  at::parallel_for(0, std::ssize(x), 32'768, [&](int64_t begin, int64_t end) {
    write_rows(x.data() + begin, 1, end - begin, 1, 0, out + begin);
  });
}

int64_t num_values(const AttentionShape& shape) {
  return shape.batch * shape.positions * shape.row_width();
}

int64_t num_results(const AttentionShape& shape) {
  return shape.batch * shape.positions * shape.num_heads * shape.head_size;
}

bool can_be_small(const AttentionShape& shape) {
  return has_small_products() && shape.head_size % 2 == 0;
}

}  // namespace

void attention_forward(const AttentionShape& shape, const Half* qkv_BTF, Half* out_BTHN,
                       float* log_sums_BHT) {
  if (can_be_small(shape)) return share_out<Forward>(shape, qkv_BTF, out_BTHN, log_sums_BHT);
  std::vector<float> out(static_cast<size_t>(num_results(shape)));
  attention_forward(shape, widened(qkv_BTF, num_values(shape)).data(), out.data(), log_sums_BHT);
  write_narrowed(out, out_BTHN);
}

void attention_backward(const AttentionShape& shape, const Half* qkv_BTF, const Half* out_BTHN,
                        const Half* dout_BTHN, const float* log_sums_BHT, Half* dqkv_BTF) {
  const BackwardArrays arrays{qkv_BTF, out_BTHN, dout_BTHN, log_sums_BHT, dqkv_BTF};
  if (can_be_small(shape)) return share_out<Backward>(shape, arrays);
  std::vector<float> dqkv(static_cast<size_t>(num_values(shape)));
  const int64_t results = num_results(shape);
  attention_backward(shape, widened(qkv_BTF, num_values(shape)).data(),
                     widened(out_BTHN, results).data(), widened(dout_BTHN, results).data(),
                     log_sums_BHT, dqkv.data());
  write_narrowed(dqkv, dqkv_BTF);
}

}  // namespace atl::model
