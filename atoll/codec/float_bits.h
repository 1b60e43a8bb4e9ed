#pragma once
// Floats as integers. Codecs work on these: comparing, rounding and scaling by powers of two are
// exact there, and do not depend on whether the thread flushes subnormal numbers to zero (training
// threads do). Where a codec multiplies floats, no subnormal one takes part in what it keeps.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>

#include "atoll/base/clones.h"

namespace atl::codec {

constexpr uint32_t kSignBit = 0x8000'0000;
constexpr uint32_t kInfinityBits = 0x7f80'0000;  // Magnitudes from here on are not finite.
constexpr uint32_t kSmallestNormal = 0x0080'0000;

ATOLL_INLINE uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
ATOLL_INLINE float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

/// The bits of |value|: ordered as the magnitudes are.
ATOLL_INLINE uint32_t magnitude_bits(float value) { return bits_of(value) & ~kSignBit; }

ATOLL_INLINE bool is_finite(float value) { return magnitude_bits(value) < kInfinityBits; }

/// The index of the first value that is NaN or of a magnitude above `largest`, or ~0
/// (Codec::kAllFinite).
size_t first_beyond(float largest, std::span<const float> values);

inline size_t first_not_finite(std::span<const float> values) {
  return first_beyond(std::numeric_limits<float>::max(), values);
}

/// The upper half of the nearest bfloat16, ties to even: adding just under half a unit, plus one
/// when the kept part is odd, carries exactly when it must. Finite values only; may be infinite.
ATOLL_INLINE uint32_t round_to_bf16(uint32_t bits) {
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

/// The nearest whole number, ties to even, for |value| up to 2^22: the sum has no bits for less.
ATOLL_INLINE int32_t round_to_int(float value) {
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23.
  return std::bit_cast<int32_t>(value + kRound) - std::bit_cast<int32_t>(kRound);
}

template <typename T>
ATOLL_INLINE T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Exact, subnormal numbers and those that are not finite included. Without jumps, so that loops
/// over it vectorise.
ATOLL_INLINE float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t magnitude = half & 0x7FFFU;
  const uint32_t usual = (magnitude << 13) + (112U << 23);
  const uint32_t not_finite = (magnitude << 13) | kInfinityBits;
  // Subnormal there.
  const uint32_t small = bits_of(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1.0p-24F);
  const uint32_t is_small = 0U - static_cast<uint32_t>(magnitude < 0x400U);
  const uint32_t is_finite = 0U - static_cast<uint32_t>(magnitude < 0x7C00U);
  const uint32_t finite = (small & is_small) | (usual & ~is_small);
  return float_of(sign | (finite & is_finite) | (not_finite & ~is_finite));
}

/// The nearest, ties to even; too large becomes infinite.
inline uint16_t float_to_half(float value) {
  const auto bits = bits_of(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t half = 0x7C00;  // Infinite.
  if (magnitude > 0x7F800000U) {
    const uint32_t fraction = (magnitude >> 13) & 0x3FFU;
    half = 0x7C00U | (fraction != 0 ? fraction : 0x200U);  // Not a number.
  } else if (magnitude < 0x38800000U) {                    // Below 2^-14: in steps of 2^-24.
    half = static_cast<uint32_t>(std::nearbyint(std::bit_cast<float>(magnitude) * 0x1.0p24F));
  } else if (magnitude < 0x477FF000U) {  // 65520 and more round up to what there is not.
    half = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

/// The nearest bfloat16, ties to even; what is no number stays so.
inline uint16_t float_to_bfloat(float value) {
  const auto bits = bits_of(value);
  if (std::isnan(value)) {
    const uint32_t top = bits >> 16;
    return static_cast<uint16_t>((top & 0x7FU) != 0 ? top : top | 0x40U);
  }
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

ATOLL_INLINE float load_bf16(const std::byte* from) {
  return float_of(static_cast<uint32_t>(load<uint16_t>(from)) << 16);
}

template <typename T>
ATOLL_INLINE void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace atl::codec
