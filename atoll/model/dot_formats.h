// How dot_loops.h reads weights where they lie: kLanes values of a row from input k on, at any
// address, as they are by definition (codec/ggml_types.h). Only for that file.
#include "atoll/model/product_loops.h"

#if ATOLL_LANES == 4
#include "atoll/codec/float_bits.h"
#else
#include <immintrin.h>
#endif

namespace atl::model {
namespace {

using Integers = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using LooseHalves =
    uint16_t __attribute__((vector_size(kLanes * sizeof(uint16_t)), aligned(1), may_alias));
using LooseBytes = uint8_t __attribute__((vector_size(kLanes), aligned(1), may_alias));
using LooseSigned = int8_t __attribute__((vector_size(kLanes), aligned(1), may_alias));

// With registers of 512 bits GCC makes four instructions of what is one.
__attribute__((always_inline)) inline Words widened_halves(const char* from) {
#if ATOLL_LANES == 16
  return reinterpret_cast<Words>(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from))));
#else
  return __builtin_convertvector(*reinterpret_cast<const LooseHalves*>(from), Words);
#endif
}
__attribute__((always_inline)) inline Integers widened_bytes(const char* from) {
#if ATOLL_LANES == 16
  return reinterpret_cast<Integers>(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from))));
#else
  return __builtin_convertvector(*reinterpret_cast<const LooseBytes*>(from), Integers);
#endif
}
__attribute__((always_inline)) inline Integers widened_signed(const char* from) {
#if ATOLL_LANES == 16
  return reinterpret_cast<Integers>(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from))));
#else
  return __builtin_convertvector(*reinterpret_cast<const LooseSigned*>(from), Integers);
#endif
}

__attribute__((always_inline)) inline float half_at(const char* from) {
  uint16_t half;
  __builtin_memcpy(&half, from, sizeof(half));
#if ATOLL_LANES == 4
  return codec::half_to_float(half);
#else
  return _cvtsh_ss(half);
#endif
}

template <typename T>
__attribute__((always_inline)) inline T value_at(const char* row, int64_t k) {
  T value;
  __builtin_memcpy(&value, row + k * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// `at` gives kLanes values; `one`, where rows need not be whole blocks, a single one; `address` is
// about where they lie.

struct F32Format {
  static constexpr bool kHasBlocks = false;
  static const char* address(const char* row, int64_t k) { return row + k * 4; }
  static Floats at(const char* row, int64_t k) {
    return reinterpret_cast<Floats>(*reinterpret_cast<const LooseWords*>(row + k * 4));
  }
  static float one(const char* row, int64_t k) { return value_at<float>(row, k); }
};

struct Bf16Format {
  static constexpr bool kHasBlocks = false;
  static const char* address(const char* row, int64_t k) { return row + k * 2; }
  static Floats at(const char* row, int64_t k) {
    return reinterpret_cast<Floats>(widened_halves(row + k * 2) << 16);
  }
  static float one(const char* row, int64_t k) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(value_at<uint16_t>(row, k)) << 16);
  }
};

constexpr int64_t kBlock = 32;

/// A scale in FP16, and 32 bytes with a sign.
struct Q8Format {
  static constexpr bool kHasBlocks = true;
  static constexpr int64_t kBytes = 34;
  static const char* address(const char* row, int64_t k) { return row + k / kBlock * kBytes; }
  static Floats at(const char* row, int64_t k) {
    const char* const block = address(row, k);
    return __builtin_convertvector(widened_signed(block + 2 + k % kBlock), Floats) * half_at(block);
  }
};

/// A scale in FP16, and 16 bytes with values from -8 in their lower halves, then in their upper.
struct Q4Format {
  static constexpr bool kHasBlocks = true;
  static constexpr int64_t kBytes = 18;
  static const char* address(const char* row, int64_t k) { return row + k / kBlock * kBytes; }
  static Floats at(const char* row, int64_t k) {
    const char* const block = address(row, k);
    const Integers both = widened_bytes(block + 2 + k % (kBlock / 2));
    const int shift = static_cast<int>(k & (kBlock / 2)) / 4;
    return __builtin_convertvector(((both >> shift) & 15) - 8, Floats) * half_at(block);
  }
};

}  // namespace
}  // namespace atl::model
