// Products with panels. product_avx512.cpp, product_avx2.cpp and product_plain.cpp compile these
// loops and those of dot_loops.h, each for its processor.
// They name ATOLL_LANES, the floats of a register, and ATOLL_ROWS, how many rows of two registers
// each stay in registers beside the panel's two and one factor. No inline function of the standard
// library is used here: the linker might take this copy of it for the whole program.
#include "atoll/model/product_kernel.h"
#include "atoll/model/turn_square.h"

#if ATOLL_LANES != 4
#include <immintrin.h>
#endif

namespace atl::model {
namespace {

constexpr int kRows = ATOLL_ROWS;

using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
// As they lie in memory: of any type, and those of a file at any address.
using LooseFloats =
    float __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));
using LooseWords =
    uint32_t __attribute__((vector_size(kLanes * sizeof(float)), aligned(1), may_alias));
using LooseHalves =
    uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t)), aligned(1), may_alias));

__attribute__((always_inline)) inline Floats load(const float* from) {
  return *reinterpret_cast<const LooseFloats*>(from);
}
// GCC makes several instructions of what is one with 512 bits and, of bytes with a sign, with 256.
__attribute__((always_inline)) inline Words widened_halves(const void* from) {
#if ATOLL_LANES == 16
  return reinterpret_cast<Words>(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i_u*>(from))));
#else
  return __builtin_convertvector(*static_cast<const LooseHalves*>(from), Words);
#endif
}
/// bfloat16s.
__attribute__((always_inline)) inline Floats load(const uint16_t* from) {
  return reinterpret_cast<Floats>(widened_halves(from) << 16);
}
__attribute__((always_inline)) inline void store(Floats value, float* to) {
  *reinterpret_cast<LooseFloats*>(to) = value;
}

/// a * b + c, rounded once. With such an instruction this file is compiled so that the compiler
/// contracts the two, which it does when it optimises (products_test.cpp would see it).
__attribute__((always_inline)) inline Floats fused(Floats a, Floats b, Floats c) {
#if defined(__FMA__) || defined(__aarch64__)
  return a * b + c;
#else
  Floats result;
  for (int lane = 0; lane < kLanes; ++lane)
    result[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return result;
#endif
}

template <typename Element, int kCount>
void multiply_rows(int64_t count, const float* x, int64_t x_stride, const Element* panel,
                   int64_t panel_stride, float* out, int64_t out_stride, bool adds) {
  Floats low[kCount];
  Floats high[kCount];
#pragma GCC unroll 16
  for (int row = 0; row < kCount; ++row) {
    low[row] = adds ? load(out + row * out_stride) : Floats{};
    high[row] = adds ? load(out + row * out_stride + kLanes) : Floats{};
  }
  for (int64_t k = 0; k < count; ++k) {
    const Floats first = load(panel);
    const Floats second = load(panel + kLanes);
#pragma GCC unroll 16
    for (int row = 0; row < kCount; ++row) {
      const Floats factor = x[row] - Floats{};  // In all lanes.
      low[row] = fused(factor, first, low[row]);
      high[row] = fused(factor, second, high[row]);
    }
    x += x_stride;
    panel += panel_stride;
  }
#pragma GCC unroll 16
  for (int row = 0; row < kCount; ++row) {
    store(low[row], out + row * out_stride);
    store(high[row], out + row * out_stride + kLanes);
  }
}

template <typename Element, int kCount>
void multiply_up_to(int64_t num_rows, int64_t count, const float* x, int64_t x_stride,
                    const void* panel, int64_t panel_stride, float* out, int64_t out_stride,
                    bool adds) {
  if (num_rows == kCount) {
    multiply_rows<Element, kCount>(count, x, x_stride, static_cast<const Element*>(panel),
                                   panel_stride, out, out_stride, adds);
  } else if constexpr (kCount > 1) {
    multiply_up_to<Element, kCount - 1>(num_rows, count, x, x_stride, panel, panel_stride, out,
                                        out_stride, adds);
  }
}

// Bytes: there are more rows than streams that processors foresee.
constexpr int kAhead = 256;

/// kLanes words of each of kLanes rows, turned.
__attribute__((always_inline)) inline void load_turned(const void* const* rows, int64_t offset,
                                                       Words* square) {
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) {
    const char* const from = static_cast<const char*>(rows[row]) + offset;
    __builtin_prefetch(from + kAhead, 0, 2);
    square[row] = *reinterpret_cast<const LooseWords*>(from);
  }
  turn_square<kLanes / 2>(square);
}

constexpr int kWidth = 2 * kLanes;

template <typename T>
T element(const void* row, int64_t k) {
  T value;
  __builtin_memcpy(&value, static_cast<const char*>(row) + k * sizeof(T), sizeof(T));
  return value;
}

void pack(const void* const* rows, int64_t count, float* panel) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    for (int half = 0; half < kWidth; half += kLanes) {
      Words square[kLanes];
      load_turned(rows + half, k * static_cast<int64_t>(sizeof(float)), square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        store(reinterpret_cast<Floats>(square[i]), panel + (k + i) * kWidth + half);
      }
    }
  }
  for (; k < count; ++k) {
    for (int lane = 0; lane < kWidth; ++lane) {
      panel[k * kWidth + lane] = element<float>(rows[lane], k);
    }
  }
}

}  // namespace
}  // namespace atl::model
