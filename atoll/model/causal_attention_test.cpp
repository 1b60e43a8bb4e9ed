// Against attention in double by its definition; and the same bits however queries are read
// together, for each instruction set and any number of threads.
#include "atoll/model/causal_attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "atoll/base/random.h"

namespace atl::model {
namespace {

using Values = std::vector<float>;

/// Queries, keys and values of a text, side by side at each position.
struct Text {
  HeadSizes sizes;
  int64_t length = 0;
  Values qkv;

  int64_t width() const { return (sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_size; }
  int64_t out_width() const { return sizes.num_heads * sizes.head_size; }
  const float* keys() const { return qkv.data() + out_width(); }
  const float* values() const { return keys() + sizes.num_kv_heads * sizes.head_size; }
  /// Queries [begin, end), of which the last sees all keys before it.
  AttendingRow row(int64_t begin, int64_t end, float* out) const {
    return {.num_queries = end - begin,
            .num_keys = end,
            .q = qkv.data() + begin * width(),
            .q_stride = width(),
            .k = {keys(), width(), sizes.head_size},
            .v = {values(), width(), sizes.head_size},
            .out_THN = out + begin * out_width()};
  }
  Values empty() const { return Values(static_cast<size_t>(length * out_width()), std::nanf("")); }
};

Text some_text(const HeadSizes& sizes, int64_t length) {
  Text text{sizes, length, {}};
  text.qkv.resize(static_cast<size_t>(length * text.width()));
  for (size_t i = 0; i < text.qkv.size(); ++i) {
    text.qkv[i] = static_cast<float>(1.5 * random_normal(3, 1, i));
  }
  return text;
}

std::vector<double> by_definition(const Text& text) {
  const auto& [heads, kv_heads, size, window, scale, softcap, sinks] = text.sizes;
  std::vector<double> out(static_cast<size_t>(text.length * text.out_width()));
  for (int64_t t = 0; t < text.length; ++t) {
    const int64_t first = window > 0 ? std::max<int64_t>(0, t + 1 - window) : 0;
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t kv = head / (heads / kv_heads) * size;
      const float* const q = text.qkv.data() + t * text.width() + head * size;
      std::vector<double> weights;
      double total = sinks == nullptr ? 0 : std::exp(static_cast<double>(sinks[head]));
      for (int64_t s = first; s <= t; ++s) {
        double score = 0;
        for (int64_t n = 0; n < size; ++n) {
          score += static_cast<double>(q[n]) *
                   static_cast<double>(text.keys()[s * text.width() + kv + n]);
        }
        score *= static_cast<double>(scale);
        const auto cap = static_cast<double>(softcap);
        weights.push_back(std::exp(cap > 0 ? cap * std::tanh(score / cap) : score));
        total += weights.back();
      }
      double* const to = &out[static_cast<size_t>(t * text.out_width() + head * size)];
      for (int64_t s = first; s <= t; ++s) {
        const double share = weights[static_cast<size_t>(s - first)] / total;
        for (int64_t n = 0; n < size; ++n) {
          to[n] += share * static_cast<double>(text.values()[s * text.width() + kv + n]);
        }
      }
    }
  }
  return out;
}

constexpr float kSinks[] = {0.5F, -3, 7, 0, 2, -1};

const std::vector<HeadSizes>& varieties() {
  static const std::vector<HeadSizes> all = {{1, 1, 1, 0, 1},
                                             {2, 1, 8, 0, 0.4F},
                                             {9, 3, 64, 0, 0.125F},
                                             {4, 4, 80, 0, 0.1F},
                                             {16, 2, 20, 7, 0.2F},
                                             {6, 3, 128, 33, 0.08F},
                                             {4, 2, 16, 0, 0.5F, 3},
                                             {6, 3, 12, 9, 0.3F, 20},
                                             {6, 3, 24, 0, 0.2F, 0, kSinks},
                                             {6, 2, 64, 9, 0.1F, 0, kSinks}};
  return all;
}

TEST(CausalAttentionTest, IsWhatItsDefinitionSays) {
  for (const HeadSizes& sizes : varieties()) {
    for (const int64_t length : {1, 2, 31, 33, 150}) {
      const Text text = some_text(sizes, length);
      const std::vector<double> expected = by_definition(text);
      Values found = text.empty();
      const AttendingRow row = text.row(0, length, found.data());
      attend(sizes, {&row, 1});
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(found[i]), expected[i], 2e-5)
            << sizes.head_size << ' ' << sizes.window << ' ' << length;
      }
    }
  }
}

TEST(CausalAttentionTest, HasTheSameBitsHoweverItIsReadAndOnEveryProcessor) {
  constexpr int64_t kLength = 203;
  const int threads = at::get_num_threads();
  for (const HeadSizes& sizes : varieties()) {
    const Text text = some_text(sizes, kLength);
    Values expected = text.empty();
    const AttendingRow whole = text.row(0, kLength, expected.data());
    attend(sizes, {&whole, 1}, *product_kernels().front());
    for (const ProductKernel* kernel : product_kernels()) {
      for (const int64_t step : {1, 5, 40, 203}) {
        at::set_num_threads(step % 4 + 1);
        Values found = text.empty();
        std::vector<AttendingRow> rows;
        for (int64_t begin = 0; begin < kLength; begin += step) {
          rows.push_back(text.row(begin, std::min(kLength, begin + step), found.data()));
        }
        attend(sizes, rows, *kernel);
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), 4 * found.size()), 0)
            << kernel->lanes << " lanes, " << step << " at a time, head size " << sizes.head_size;
      }
    }
  }
  at::set_num_threads(threads);
}

/// Keys and values of a text in pages, as caches have them.
class Pages {
 public:
  static constexpr int64_t kPositions = 32;

  explicit Pages(const Text& text) : sizes_(text.sizes) {
    const int64_t num_pages = (text.length + kPositions - 1) / kPositions;
    const int64_t page_size = kPositions * sizes_.num_kv_heads * sizes_.head_size;
    // The last ones are read, and their values do not matter.
    keys_.assign(static_cast<size_t>(num_pages * page_size + kMaxLanes), 0.0F);
    values_ = keys_;
    for (int64_t t = 0; t < text.length; ++t) {
      for (int64_t head = 0; head < sizes_.num_kv_heads; ++head) {
        for (int64_t n = 0; n < sizes_.head_size; ++n) {
          const int64_t from = t * text.width() + head * sizes_.head_size + n;
          const int64_t place = t / kPositions * page_size + head * kPositions * sizes_.head_size;
          keys_[static_cast<size_t>(place + n * kPositions + t % kPositions)] = text.keys()[from];
          values_[static_cast<size_t>(place + t % kPositions * sizes_.head_size + n)] =
              text.values()[from];
        }
      }
    }
    for (int64_t page = 0; page < num_pages; ++page) {
      key_pages_.push_back(&keys_[static_cast<size_t>(page * page_size)]);
      value_pages_.push_back(&values_[static_cast<size_t>(page * page_size)]);
    }
  }

  AttendingRow with(AttendingRow row) const {
    const int64_t head = kPositions * sizes_.head_size;
    row.k = {.position_stride = 1,
             .head_stride = head,
             .element_stride = kPositions,
             .pages = key_pages_.data(),
             .page_positions = kPositions};
    row.v = {.position_stride = sizes_.head_size,
             .head_stride = head,
             .pages = value_pages_.data(),
             .page_positions = kPositions};
    return row;
  }

 private:
  HeadSizes sizes_;
  std::vector<float> keys_, values_;
  std::vector<const float*> key_pages_, value_pages_;
};

TEST(CausalAttentionTest, HasTheSameBitsFromPages) {
  constexpr int64_t kLength = 203;
  for (const HeadSizes& sizes : varieties()) {
    const Text text = some_text(sizes, kLength);
    const Pages pages(text);
    Values expected = text.empty();
    const AttendingRow whole = text.row(0, kLength, expected.data());
    attend(sizes, {&whole, 1}, *product_kernels().front());
    for (const ProductKernel* kernel : product_kernels()) {
      for (const int64_t step : {1, 5, 40, 203}) {
        Values found = text.empty();
        std::vector<AttendingRow> rows;
        for (int64_t begin = 0; begin < kLength; begin += step) {
          const int64_t end = std::min(kLength, begin + step);
          rows.push_back(pages.with(text.row(begin, end, found.data())));
        }
        attend(sizes, rows, *kernel);
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), 4 * found.size()), 0)
            << kernel->lanes << " lanes, " << step << " at a time, head size " << sizes.head_size;
      }
    }
  }
}

TEST(CausalAttentionTest, LargeScoresAreNoTrouble) {
  const HeadSizes sizes{1, 1, 16, 0, 0.25F};
  Text text = some_text(sizes, 60);
  for (float& value : text.qkv) value *= 40;
  Values found = text.empty();
  const AttendingRow row = text.row(0, 60, found.data());
  attend(sizes, {&row, 1});
  for (const float value : found) EXPECT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace atl::model
