#include "atoll/model/small_products.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "atoll/model/tile_products.h"

// LibTorch's own way to them, which no header of its names everywhere; weak, so that one without
// them links.
namespace at::native::cpublas {
__attribute__((weak)) bool could_pack(c10::ScalarType type);
__attribute__((weak)) void brgemm(int64_t m, int64_t n, int64_t k, int64_t a_stride,
                                  int64_t b_stride, int64_t out_stride, bool accumulates,
                                  const c10::BFloat16* a, const c10::BFloat16* b, float* out,
                                  bool is_in_pairs);
__attribute__((weak)) void brgemm_release(bool is_in_pairs);
}  // namespace at::native::cpublas

namespace atl::model {
namespace {

bool multiplies_bf16() {
  return has_tiles(at::kBFloat16) || (at::native::cpublas::could_pack != nullptr &&
                                      at::native::cpublas::could_pack(c10::kBFloat16));
}

/// A 2 x 2 product of small whole numbers, which BF16 has.
bool is_right() {
  constexpr int64_t kSize = 16;
  Half a[2 * kSize];
  Half pairs[2 * kSize];
  float wanted[4] = {};
  float found[4] = {};
  for (int64_t k = 0; k < kSize; ++k) {
    for (int64_t i = 0; i < 2; ++i) {
      a[i * kSize + k] = static_cast<float>(k + i);
      pairs[(k / 2 * 2 + i) * 2 + k % 2] = static_cast<float>(k - 3 * i);
      for (int64_t j = 0; j < 2; ++j) {
        wanted[i * 2 + j] += static_cast<float>((k + i) * (k - 3 * j));
      }
    }
  }
  try {
    const SmallProducts small;
    multiply(2, 2, kSize, {a, kSize}, {pairs, 2}, found);
  } catch (const std::exception&) {
    return false;
  }
  return std::ranges::equal(wanted, found);
}

}  // namespace

bool has_small_products() {
  static const bool answer = at::native::cpublas::brgemm != nullptr &&
                             at::native::cpublas::brgemm_release != nullptr && multiplies_bf16() &&
                             is_right();
  return answer;
}

SmallProducts::~SmallProducts() { at::native::cpublas::brgemm_release(true); }

void multiply(int64_t m, int64_t n, int64_t k, HalfRows a, HalfPairs b, float* out,
              bool accumulates) {
  at::native::cpublas::brgemm(m, n, k, a.stride, b.width, n, accumulates, a.data, b.data, out,
                              true);
}

int64_t even(int64_t count) { return (count + 1) / 2 * 2; }

ATOLL_CLONES void in_pairs(HalfRows x, int64_t count, int64_t padded, int64_t width, Half* pairs) {
  auto* const words = reinterpret_cast<uint32_t*>(pairs);
  for (int64_t row = 0; row < padded; row += 2) {
    const Half* const low = x.data + row * x.stride;
    const Half* const high = low + x.stride;
    uint32_t* const target = words + row / 2 * width;
    if (row + 1 < count) {
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) target[i] = word_of(low[i], high[i]);
    } else {
      for (int64_t i = 0; i < width; ++i) target[i] = row < count ? low[i].x : 0;
    }
  }
}

ATOLL_CLONES void transposed_in_pairs(HalfRows x, int64_t count, int64_t padded, int64_t width,
                                      Half* pairs) {
  auto* const words = reinterpret_cast<uint32_t*>(pairs);
  constexpr int64_t kBlock = 16;
  for (int64_t first = 0; first < padded; first += kBlock) {
    const int64_t last = std::min(first + kBlock, padded);
    for (int64_t pair = 0; pair < width / 2; ++pair) {
      for (int64_t row = first; row < last; ++row) {
        uint32_t word = 0;
        if (row < count) std::memcpy(&word, x.data + row * x.stride + 2 * pair, sizeof(word));
        words[pair * padded + row] = word;
      }
    }
  }
}

ATOLL_CLONES void transposed(HalfRows x, int64_t count, int64_t width, int64_t stride, Half* out) {
  constexpr int64_t kBlock = 32;
  for (int64_t first = 0; first < stride; first += kBlock) {
    const int64_t last = std::min(first + kBlock, stride);
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t row = first; row < last; ++row) {
        out[i * stride + row].x = row < count ? x.data[row * x.stride + i].x : 0;
      }
    }
  }
}

}  // namespace atl::model
