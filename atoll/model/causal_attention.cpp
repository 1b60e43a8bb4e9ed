#include "atoll/model/causal_attention.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <vector>

#include "atoll/model/few_queries.h"
#include "atoll/model/simd.h"

namespace atl::model {
namespace {

// Queries of all heads that share keys and are handled together.
constexpr int64_t kTileRows = 64;
// Rows of scores are padded to this many.
constexpr int64_t kPadding = 16;

int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/// What each column of a tile of scores sees: keys [from, to).
struct Sight {
  std::vector<int32_t> from, to;
  int64_t first_key = 0, last_key = 0;  // Those that any sees,
  int64_t all_from = 0, all_to = 0;     // and those that all see.
};

ATOLL_CLONES void take_maxima(const Sight& sight, int64_t width, const float* scores_SM,
                              float* maxima_M) {
  const int32_t* const from = sight.from.data();
  const int32_t* const to = sight.to.data();
  std::fill_n(maxima_M, width, -INFINITY);
  for (int64_t key = sight.first_key; key < sight.last_key; ++key) {
    const float* const row = scores_SM + (key - sight.first_key) * width;
    const auto at = static_cast<int32_t>(key);
#pragma omp simd
    for (int64_t m = 0; m < width; ++m) {
      const bool is_seen = at >= from[m] && at < to[m];
      const float score = is_seen ? row[m] : -INFINITY;
      maxima_M[m] = score > maxima_M[m] ? score : maxima_M[m];
    }
  }
}

/// Rows of bfloat16s, which lie `stride` apart, as floats that lie `width` apart.
ATOLL_CLONES void widen(const uint16_t* from, int64_t stride, int64_t num_rows, int64_t count,
                        float* to, int64_t width) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t i = 0; i < count; ++i) {
      to[row * width + i] = std::bit_cast<float>(uint32_t{from[row * stride + i]} << 16);
    }
  }
}

ATOLL_CLONES void cap(float cap, std::span<float> scores) {
  const float inverse = 1.0F / cap;
  for (float& score : scores) {
    // tanh(x) = 1 - 2 / (e^2x + 1); its error is small beside the cap.
    score = cap - 2 * cap / (fast_exp(2 * score * inverse) + 1.0F);
  }
}

/// Scores become exponentials, 0 where a query does not see the key, and are added to the sums.
ATOLL_CLONES void exponentiate(const Sight& sight, int64_t width, const float* maxima_M,
                               float* scores_SM, float* part_M, float* sums_M) {
  const int32_t* const from = sight.from.data();
  const int32_t* const to = sight.to.data();
  std::fill_n(sums_M, width, 0.0F);
  std::fill_n(part_M, width, 0.0F);
  for (int64_t key = sight.first_key; key < sight.last_key; ++key) {
    float* const row = scores_SM + (key - sight.first_key) * width;
#pragma omp simd
    for (int64_t m = 0; m < width; ++m) row[m] = fast_exp(row[m] - maxima_M[m]);
    if (key < sight.all_from || key >= sight.all_to) {
      const auto at = static_cast<int32_t>(key);
#pragma omp simd
      for (int64_t m = 0; m < width; ++m) row[m] = at >= from[m] && at < to[m] ? row[m] : 0.0F;
    }
#pragma omp simd
    for (int64_t m = 0; m < width; ++m) part_M[m] += row[m];
    if ((key + 1) % kSumBlock != 0 && key + 1 != sight.last_key) continue;
#pragma omp simd
    for (int64_t m = 0; m < width; ++m) {
      sums_M[m] += part_M[m];
      part_M[m] = 0;
    }
  }
}

/// Some queries of one sequence, all heads of one key-value head: their columns of scores are
/// (query, head of the group).
class Tile {
 public:
  Tile(const HeadSizes& sizes, const AttendingRow& row, int64_t kv_head, int64_t first_query,
       int64_t num_queries, const ProductKernel& kernel)
      : sizes_(sizes),
        row_(row),
        kernel_(kernel),
        kv_head_(kv_head),
        first_query_(first_query),
        group_(sizes.num_heads / sizes.num_kv_heads),
        num_columns_(num_queries * group_),
        width_(rounded_up(num_columns_, num_columns_ > kPadding ? kernel.lanes : kPadding)) {
    see(num_queries);
  }

  void attend() {
    const int64_t num_keys = sight_.last_key - sight_.first_key;
    scores_SM_.resize(static_cast<size_t>(num_keys * width_));
    score();
    if (sizes_.softcap > 0) cap(sizes_.softcap, scores_SM_);
    std::vector<float> maxima(static_cast<size_t>(width_));
    std::vector<float> parts(maxima.size());
    std::vector<float> sums(maxima.size());
    take_maxima(sight_, width_, scores_SM_.data(), maxima.data());
    for (int64_t m = 0; has_sinks() && m < num_columns_; ++m) {
      maxima[static_cast<size_t>(m)] = std::max(maxima[static_cast<size_t>(m)], sink(m));
    }
    exponentiate(sight_, width_, maxima.data(), scores_SM_.data(), parts.data(), sums.data());
    for (int64_t m = 0; has_sinks() && m < num_columns_; ++m) {
      sums[static_cast<size_t>(m)] += fast_exp(sink(m) - maxima[static_cast<size_t>(m)]);
    }
    weigh(sums);
  }

 private:
  using Buffer = std::vector<float>;

  bool has_sinks() const { return sizes_.sinks_H != nullptr; }
  float sink(int64_t column) const { return sizes_.sinks_H[kv_head_ * group_ + column % group_]; }

  void see(int64_t num_queries) {
    const int64_t before = row_.num_keys - row_.num_queries;
    sight_.last_key = before + first_query_ + num_queries;
    sight_.first_key = sight_.all_to = sight_.last_key;
    for (int64_t column = 0; column < width_; ++column) {
      const int64_t query = std::min(column / group_, num_queries - 1);
      const int64_t to = before + first_query_ + query + 1;
      const int64_t from = sizes_.window > 0 ? std::max<int64_t>(0, to - sizes_.window) : 0;
      sight_.from.push_back(static_cast<int32_t>(from));
      sight_.to.push_back(static_cast<int32_t>(to));
      sight_.first_key = std::min(sight_.first_key, from);
      sight_.all_from = std::max(sight_.all_from, from);
      sight_.all_to = std::min(sight_.all_to, to);
    }
  }

  const float* query(int64_t column) const {
    const int64_t at = first_query_ + column / group_;
    const int64_t head = kv_head_ * group_ + column % group_;
    return row_.q + at * row_.q_stride + head * sizes_.head_size;
  }

  /// Queries times the scale, as columns; those behind the last one are copies of it.
  void gather_queries() {
    queries_NM_.resize(static_cast<size_t>(sizes_.head_size * width_));
    for (int64_t column = 0; column < width_; ++column) {
      const float* const from = query(std::min(column, num_columns_ - 1));
      float* const to = queries_NM_.data() + column;
      for (int64_t n = 0; n < sizes_.head_size; ++n) to[n * width_] = from[n] * sizes_.scale;
    }
  }

  /// Neighbouring keys as the kernel reads them: element by element, `stride` apart.
  struct Panel {
    const void* data;
    int64_t stride;
    PanelFormat format = PanelFormat::kF32;
  };

  void score() {
    gather_queries();
    Buffer packed(static_cast<size_t>(sizes_.head_size * kernel_.lanes));
    Buffer few(static_cast<size_t>(kernel_.max_rows * kernel_.lanes));
    const bool are_packed = row_.k.element_stride != 1;
    const bool keys_are_lanes = width_ % kernel_.lanes != 0;  // Else queries are.
    for (int64_t key = sight_.first_key; key < sight_.last_key;) {
      const int64_t end = are_packed ? row_.k.run_end(key, sight_.last_key) : sight_.last_key;
      const int64_t count = std::min(kernel_.lanes, end - key);
      Panel panel = are_packed
                        ? Panel{row_.k.at(key, kv_head_), row_.k.element_stride, row_.k.format}
                        : pack(key, count, packed);
      float* const scores = scores_SM_.data() + (key - sight_.first_key) * width_;
      if (keys_are_lanes) {
        score_by_keys(count, panel, few, scores);
      } else {
        if (panel.format == PanelFormat::kBF16) panel = widened(panel, count, packed);
        score_by_queries(count, panel, scores);
      }
      key += count;
    }
  }

  Panel pack(int64_t key, int64_t count, Buffer& packed) const {
    std::array<const void*, kMaxLanes> rows{};
    for (int64_t lane = 0; lane < kernel_.lanes; ++lane) {
      rows[static_cast<size_t>(lane)] = row_.k.at(key + std::min(lane, count - 1), kv_head_);
    }
    kernel_.pack(rows.data(), sizes_.head_size, packed.data());
    return {packed.data(), kernel_.lanes};
  }

  Panel widened(const Panel& keys, int64_t count, Buffer& packed) const {
    widen(static_cast<const uint16_t*>(keys.data), keys.stride, sizes_.head_size, count,
          packed.data(), kernel_.lanes);
    return {packed.data(), kernel_.lanes};
  }

  /// Queries are the lanes; keys are floats.
  void score_by_queries(int64_t count, const Panel& keys, float* scores) const {
    // Equal parts: the last of them would be slow if it were small.
    const int64_t num_parts = (count + kernel_.max_rows - 1) / kernel_.max_rows;
    const int64_t part = (count + num_parts - 1) / num_parts;
    for (int64_t column = 0; column < width_; column += kernel_.lanes) {
      for (int64_t key = 0; key < count; key += part) {
        kernel_.multiply[0](std::min(part, count - key), sizes_.head_size,
                            static_cast<const float*>(keys.data) + key, keys.stride,
                            queries_NM_.data() + column, width_, scores + key * width_ + column,
                            width_, false);
      }
    }
  }

  /// Keys are the lanes: of few queries.
  void score_by_keys(int64_t count, const Panel& keys, Buffer& few, float* scores) const {
    const auto multiply = kernel_.multiply[static_cast<size_t>(keys.format)];
    for (int64_t column = 0; column < num_columns_; column += kernel_.max_rows) {
      const int64_t columns = std::min(kernel_.max_rows, num_columns_ - column);
      multiply(columns, sizes_.head_size, queries_NM_.data() + column, width_, keys.data,
               keys.stride, few.data(), kernel_.lanes, false);
      for (int64_t key = 0; key < count; ++key) {
        for (int64_t i = 0; i < columns; ++i) {
          scores[key * width_ + column + i] = few[static_cast<size_t>(i * kernel_.lanes + key)];
        }
      }
    }
  }

  /// The values, weighed by the scores over their sums.
  void weigh(const Buffer& sums) const {
    Buffer out(static_cast<size_t>(kernel_.max_rows * kernel_.lanes));
    Buffer narrow;
    for (int64_t n = 0; n < sizes_.head_size; n += kernel_.lanes) {
      const int64_t size = std::min(kernel_.lanes, sizes_.head_size - n);
      if (size < kernel_.lanes && row_.v.pages == nullptr) gather_narrow(n, size, narrow);
      for (int64_t column = 0; column < num_columns_; column += kernel_.max_rows) {
        const int64_t columns = std::min(kernel_.max_rows, num_columns_ - column);
        weigh(column, columns, n, narrow, out);
        for (int64_t i = 0; i < columns; ++i) {
          write(column + i, n, size, &out[static_cast<size_t>(i * kernel_.lanes)],
                1.0F / sums[static_cast<size_t>(column + i)]);
        }
      }
    }
  }

  /// Elements from n on of some columns: one chain over all keys, however they lie. From `narrow`
  /// unless that is empty.
  void weigh(int64_t column, int64_t columns, int64_t n, const Buffer& narrow, Buffer& out) const {
    const auto multiply = kernel_.multiply[static_cast<size_t>(row_.v.format)];
    for (int64_t key = sight_.first_key; key < sight_.last_key;) {
      const int64_t end = narrow.empty() ? row_.v.run_end(key, sight_.last_key) : sight_.last_key;
      const void* const panel = narrow.empty() ? row_.v.at(key, kv_head_, n) : narrow.data();
      const int64_t stride = narrow.empty() ? row_.v.position_stride : kernel_.lanes;
      multiply(columns, end - key, scores_SM_.data() + (key - sight_.first_key) * width_ + column,
               width_, panel, stride, out.data(), kernel_.lanes, key != sight_.first_key);
      key = end;
    }
  }

  /// A head's last elements, where they are fewer than lanes and there may be nothing behind them.
  void gather_narrow(int64_t n, int64_t size, Buffer& narrow) const {
    const int64_t num_keys = sight_.last_key - sight_.first_key;
    narrow.assign(static_cast<size_t>(num_keys * kernel_.lanes), 0.0F);
    for (int64_t key = 0; key < num_keys; ++key) {
      std::copy_n(static_cast<const float*>(row_.v.at(sight_.first_key + key, kv_head_, n)), size,
                  &narrow[static_cast<size_t>(key * kernel_.lanes)]);
    }
  }

  void write(int64_t column, int64_t n, int64_t size, const float* values, float factor) const {
    const int64_t query = first_query_ + column / group_;
    const int64_t head = kv_head_ * group_ + column % group_;
    float* const to = row_.out_THN + (query * sizes_.num_heads + head) * sizes_.head_size + n;
    for (int64_t i = 0; i < size; ++i) to[i] = values[i] * factor;
  }

  const HeadSizes& sizes_;
  const AttendingRow& row_;
  const ProductKernel& kernel_;
  int64_t kv_head_, first_query_;
  int64_t group_;        // Query heads per key-value head.
  int64_t num_columns_;  // Queries times those,
  int64_t width_;        // padded.
  Sight sight_;
  Buffer queries_NM_;
  Buffer scores_SM_;
};

/// One tile's place.
struct Unit {
  const AttendingRow* row;
  int64_t kv_head, first_query;
};

}  // namespace

void attend(const HeadSizes& sizes, std::span<const AttendingRow> rows,
            const ProductKernel& kernel) {
  const int64_t tile = std::max<int64_t>(1, kTileRows * sizes.num_kv_heads / sizes.num_heads);
  std::vector<Unit> units;
  for (const AttendingRow& row : rows) {
    for (int64_t query = 0; query < row.num_queries; query += tile) {
      for (int64_t head = 0; head < sizes.num_kv_heads; ++head)
        units.push_back({&row, head, query});
    }
  }
  // Later queries see more: a late one beside each early one, so that equal shares are equal work.
  for (size_t i = 1, last = units.size() / 2 * 2; i < units.size() / 2; i += 2) {
    std::swap(units[i], units[last - i]);
  }
  at::parallel_for(0, std::ssize(units), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [row, kv_head, first_query] = units[static_cast<size_t>(i)];
      if (are_few(sizes, *row)) {
        attend_few(sizes, *row, kv_head, kernel);
      } else {
        Tile(sizes, *row, kv_head, first_query, std::min(tile, row->num_queries - first_query),
             kernel)
            .attend();
      }
    }
  });
}

}  // namespace atl::model
