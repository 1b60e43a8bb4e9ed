#pragma once
// Causal grouped-query attention for those who evaluate and generate, with a cache or without one.
// Every score and every output is one chain of fused multiply-adds, in order of the head's elements
// and of the keys, and sums have one order too: while values are finite, the bits of a token depend
// neither on which tokens are read together with it, nor on threads, nor on the instruction set.
// Training has its own (attention_kernel.h).
//
// Shapes: T = queries, S = keys, H = query heads, G = key-value heads, N = head size.
#include <cstdint>
#include <span>

#include "atoll/model/product_kernel.h"

namespace atl::model {

struct HeadSizes {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_size = 0;
  int64_t window = 0;  // Positions that a query sees, its own included; 0: all before it.
  float scale = 1;     // Of scores.
  float softcap = 0;   // Scores become cap tanh(score / cap); 0: they stay.
  /// A score for each query head that takes part in the softmax, but has no value; null: none.
  const float* sinks_H = nullptr;
};

// Keys whose exponentials are added up by themselves, then to the sum: it has the same order
// everywhere, and loses less than one long chain.
constexpr int64_t kSumBlock = 32;

/// Where keys or values lie: element n of head g at position s is at
/// data[s * position_stride + g * head_stride + n * element_stride]; or in pages of
/// `page_positions` positions, each as this, one behind the other. Either positions or elements are
/// neighbours: keys in pages have positions so, as products read them, all others elements. Behind
/// the last page's positions some more elements can be read. Only in pages they may be bfloat16s.
struct KeysInMemory {
  const float* data = nullptr;
  int64_t position_stride = 0;
  int64_t head_stride = 0;
  int64_t element_stride = 1;
  const void* const* pages = nullptr;  // Instead of `data`.
  int64_t page_positions = 0;
  PanelFormat format = PanelFormat::kF32;

  /// Its element n.
  const void* at(int64_t position, int64_t head, int64_t n = 0) const {
    const void* base = data;
    if (pages != nullptr) {
      base = pages[position / page_positions];
      position %= page_positions;
    }
    const int64_t element = position * position_stride + head * head_stride + n * element_stride;
    return static_cast<const char*>(base) + element * size_of(format);
  }
  /// Behind the last of the positions from this one on that lie `position_stride` apart.
  int64_t run_end(int64_t position, int64_t last) const {
    if (pages == nullptr) return last;
    const int64_t page_end = (position / page_positions + 1) * page_positions;
    return page_end < last ? page_end : last;
  }
};

/// A sequence. The last query belongs to the last key.
struct AttendingRow {
  int64_t num_queries = 0;
  int64_t num_keys = 0;
  const float* q = nullptr;  // Heads side by side; `q_stride` from one position to the next.
  int64_t q_stride = 0;
  KeysInMemory k, v;
  float* out_THN = nullptr;
};

/// out = softmax(scale q k^T, causal, within the window) v for every row, with the threads that
/// LibTorch uses.
void attend(const HeadSizes& sizes, std::span<const AttendingRow> rows,
            const ProductKernel& kernel = product_kernel());

}  // namespace atl::model
