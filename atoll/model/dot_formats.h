// How dot_loops.h reads weights where they lie, at any address: kLanes values at a time, as they
// are by definition (codec/ggml_types.h). Only for that file.
#include "atoll/model/product_loops.h"

#if ATOLL_LANES == 4
#include "atoll/codec/float_bits.h"
#endif

namespace atl::model {
namespace {

using Integers = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));
using Bytes = uint8_t __attribute__((vector_size(kLanes)));
using SignedBytes = int8_t __attribute__((vector_size(kLanes)));
using BytePairs = uint16_t __attribute__((vector_size(kLanes)));
using LooseBytes = uint8_t __attribute__((vector_size(kLanes), aligned(1), may_alias));

__attribute__((always_inline)) inline Floats widened(Bytes bytes) {
#if ATOLL_LANES == 16
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(reinterpret_cast<__m128i>(bytes)));
#else
  return __builtin_convertvector(__builtin_convertvector(bytes, Integers), Floats);
#endif
}
__attribute__((always_inline)) inline Floats widened(SignedBytes bytes) {
#if ATOLL_LANES == 16
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)));
#elif ATOLL_LANES == 8
  const __m128i low = _mm_cvtsi64_si128(__builtin_bit_cast(int64_t, bytes));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low));
#else
  return __builtin_convertvector(__builtin_convertvector(bytes, Integers), Floats);
#endif
}

__attribute__((always_inline)) inline Bytes bytes_at(const char* from) {
  return *reinterpret_cast<const LooseBytes*>(from);
}
/// Of each byte `kCount` bits, from bit `first` on. Processors shift no bytes, but pairs of them.
template <int kCount>
__attribute__((always_inline)) inline Bytes bits_at(const char* from, int first) {
  const auto pairs = reinterpret_cast<BytePairs>(bytes_at(from));
  return reinterpret_cast<Bytes>(pairs >> first) & static_cast<uint8_t>((1 << kCount) - 1);
}
/// The same bits behind `kCount` others of each byte.
template <int kCount>
__attribute__((always_inline)) inline Bytes behind(Bytes bits) {
  return reinterpret_cast<Bytes>(reinterpret_cast<BytePairs>(bits) << kCount);
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

// A format's rows are blocks of kBlock values in kBytes. Scales are read once for all values of a
// block; `at` gives kLanes values from its value `k` on, a multiple of kLanes; `one`, where rows
// need not be whole blocks, a single one of a row.
//
// Where a value is a product less an offset (or with one more), the product is exact: it has 23
// bits at most. So it does not matter whether the compiler contracts the two.

struct NoScales {
  void read(const char* /*block*/) {}
};

struct F32Format {
  static constexpr bool kMayEndAnywhere = true;
  static constexpr int64_t kBlock = kSumLanes;
  static constexpr int64_t kBytes = kBlock * 4;
  using Scales = NoScales;
  static Floats at(const char* block, const Scales& /*scales*/, int64_t k) {
    return reinterpret_cast<Floats>(*reinterpret_cast<const LooseWords*>(block + k * 4));
  }
  static float one(const char* row, int64_t k) { return value_at<float>(row, k); }
};

struct Bf16Format {
  static constexpr bool kMayEndAnywhere = true;
  static constexpr int64_t kBlock = kSumLanes;
  static constexpr int64_t kBytes = kBlock * 2;
  using Scales = NoScales;
  static Floats at(const char* block, const Scales& /*scales*/, int64_t k) {
    return reinterpret_cast<Floats>(widened_halves(block + k * 2) << 16);
  }
  static float one(const char* row, int64_t k) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(value_at<uint16_t>(row, k)) << 16);
  }
};

/// Formats whose rows are whole blocks.
template <int64_t kValues, int64_t kSize>
struct BlockFormat {
  static constexpr bool kMayEndAnywhere = false;
  static constexpr int64_t kBlock = kValues;
  static constexpr int64_t kBytes = kSize;
};

struct Scale {
  float scale;
  void read(const char* block) { scale = half_at(block); }
};

/// A scale in FP16, and 32 bytes with a sign.
struct Q8Format : BlockFormat<32, 34> {
  using Scales = Scale;
  static Floats at(const char* block, const Scales& scales, int64_t k) {
    return widened(reinterpret_cast<SignedBytes>(bytes_at(block + 2 + k))) * scales.scale;
  }
};

/// Of a block of 32 with 16 bytes: values in their lower halves, then in their upper.
__attribute__((always_inline)) inline Bytes four_bits(const char* bytes, int64_t k) {
  return bits_at<4>(bytes + k % 16, static_cast<int>(k / 16 * 4));
}

/// A scale in FP16, and values from -8.
struct Q4Format : BlockFormat<32, 18> {
  using Scales = Scale;
  static Floats at(const char* block, const Scales& scales, int64_t k) {
    return widened(reinterpret_cast<SignedBytes>(four_bits(block + 2, k) - 8)) * scales.scale;
  }
};

/// A scale and an offset in FP16.
struct Q4OffsetFormat : BlockFormat<32, 20> {
  struct Scales {
    float scale, offset;
    void read(const char* block) {
      scale = half_at(block);
      offset = half_at(block + 2);
    }
  };
  static Floats at(const char* block, const Scales& scales, int64_t k) {
    return widened(four_bits(block + 4, k)) * scales.scale + scales.offset;
  }
};

/// Two scales in FP16, and behind them for each part of 32 values two factors of six bits: the
/// first four of each lie whole, of the others the upper two bits there.
struct PartScales {
  float factors[16];  // Those of the first scale, then those of the second.
  void read(const char* block) {
    using Four = uint32_t __attribute__((vector_size(16)));
    Four words;  // The scales, upper bits twice, and the others' lower four.
    __builtin_memcpy(&words, block, sizeof(words));
    const Four upper = __builtin_shufflevector(words, words, 1, 1, 2, 2) >> Four{0, 2, 0, 2};
    const Four lower = __builtin_shufflevector(words, words, 3, 3, 3, 3) >> Four{0, 0, 0, 4};
    const Four all = (upper & Four{0x3f3f3f3f, 0x30303030, 0x3f3f3f3f, 0x30303030}) |
                     (lower & Four{0, 0x0f0f0f0f, 0, 0x0f0f0f0f});
    const float scale = half_at(block);
    const float least = half_at(block + 2);
#if ATOLL_LANES == 16
    const Floats units = __builtin_shufflevector(scale - Floats{}, least - Floats{}, 0, 0, 0, 0, 0,
                                                 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16);
    store(widened(reinterpret_cast<Bytes>(all)) * units, factors);
#else
    char bytes[16];
    __builtin_memcpy(bytes, &all, sizeof(all));
    for (int i = 0; i < 8; i += kLanes) {
      store(widened(bytes_at(bytes + i)) * scale, factors + i);
      store(widened(bytes_at(bytes + 8 + i)) * least, factors + 8 + i);
    }
#endif
  }
};

/// Of a block of 256 with 128 bytes: each 32 have the values of one part in their lower halves, of
/// the next one in their upper.
__attribute__((always_inline)) inline Bytes four_bits_of_parts(const char* bytes, int64_t k) {
  return bits_at<4>(bytes + k / 64 * 32 + k % 32, static_cast<int>(k / 32 % 2 * 4));
}

__attribute__((always_inline)) inline Floats scaled(Bytes bits, const PartScales& scales,
                                                    int64_t k) {
  return widened(bits) * scales.factors[k / 32] - scales.factors[8 + k / 32];
}

struct Q4PartsFormat : BlockFormat<256, 144> {
  using Scales = PartScales;
  static Floats at(const char* block, const Scales& scales, int64_t k) {
    return scaled(four_bits_of_parts(block + 16, k), scales, k);
  }
};

/// The fifth bits come before the others: those of all parts, in 32 bytes.
struct Q5PartsFormat : BlockFormat<256, 176> {
  using Scales = PartScales;
  static Floats at(const char* block, const Scales& scales, int64_t k) {
    const Bytes fifth = bits_at<1>(block + 16 + k % 32, static_cast<int>(k / 32));
    return scaled(four_bits_of_parts(block + 48, k) | behind<4>(fifth), scales, k);
  }
};

/// The four lower bits of 256 values from -32, the two upper ones, a factor with a sign for each 16
/// of them, and a scale in FP16.
struct Q6Format : BlockFormat<256, 210> {
  struct Scales {
    float scale[16];
    void read(const char* block) {
      const float unit = half_at(block + 208);
      for (int i = 0; i < 16; i += kLanes) {
        store(widened(reinterpret_cast<SignedBytes>(bytes_at(block + 192 + i))) * unit, scale + i);
      }
    }
  };
  static Floats at(const char* block, const Scales& scales, int64_t k) {
    const int64_t half = k / 128;
    const Bytes low = bits_at<4>(block + half * 64 + k % 64, static_cast<int>(k / 64 % 2 * 4));
    const Bytes high =
        bits_at<2>(block + 128 + half * 32 + k % 32, static_cast<int>(k / 32 % 4 * 2));
    return widened(reinterpret_cast<SignedBytes>((low | behind<4>(high)) - 32)) *
           scales.scale[k / 16];
  }
};

}  // namespace
}  // namespace atl::model
