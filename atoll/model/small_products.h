#pragma once
// oneDNN's small products of BF16 (AMX, or AVX-512 with BF16), which sum in FP32, and the forms in
// which they read factors. A second factor lies in pairs of rows (VNNI): element (k, n) at
// [k / 2][n][k % 2]. Plain pointers; nothing overlaps. Only for attention_bf16.cpp.
#include <c10/util/BFloat16.h>

#include <cstdint>

#include "atoll/base/clones.h"

namespace atl::model {

using Half = c10::BFloat16;

/// Whether LibTorch has them, and this processor.
bool has_small_products();

/// While a thread makes some: registers that only they use are given back at the end.
class SmallProducts {
 public:
  SmallProducts() = default;
  ~SmallProducts();
  SmallProducts(const SmallProducts&) = delete;
  SmallProducts& operator=(const SmallProducts&) = delete;
};

/// Rows of a first factor.
struct HalfRows {
  const Half* data = nullptr;
  int64_t stride = 0;

  HalfRows from(int64_t row) const { return {data + row * stride, stride}; }
};

/// Columns of a second factor, in pairs of rows that are `width` columns wide.
struct HalfPairs {
  const Half* data = nullptr;
  int64_t width = 0;
};

/// out (m, n), dense, = or += a (m, k) b (k, n); k is even.
void multiply(int64_t m, int64_t n, int64_t k, HalfRows a, HalfPairs b, float* out,
              bool accumulates = false);

int64_t even(int64_t count);

ATOLL_INLINE uint32_t word_of(Half low, Half high) {
  return static_cast<uint32_t>(low.x) | static_cast<uint32_t>(high.x) << 16;
}

/// x (count, width) as a second factor of `padded` rows, those behind `count` zero.
void in_pairs(HalfRows x, int64_t count, int64_t padded, int64_t width, Half* pairs);

/// The transpose of x (count, width) as a second factor of `padded` columns, those behind `count`
/// zero: pairs of elements keep together.
void transposed_in_pairs(HalfRows x, int64_t count, int64_t padded, int64_t width, Half* pairs);

/// The transpose of x (count, width), with rows of `stride`, zero behind `count`.
void transposed(HalfRows x, int64_t count, int64_t width, int64_t stride, Half* out);

}  // namespace atl::model
