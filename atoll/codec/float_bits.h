#pragma once
// Floats as integers. Codecs work on these: comparing, rounding and scaling by powers of two are
// exact there, and do not depend on whether the thread flushes subnormal numbers to zero (training
// threads do). Where a codec multiplies floats, no subnormal one takes part in what it keeps.
#include <bit>
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

/// Exact, subnormal numbers and those that are not finite included.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t exponent = (half >> 10) & 0x1FU;
  const uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1F) return float_of(sign | kInfinityBits | (fraction << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1.0p-24F;  // Subnormal there.
  return sign != 0 ? -magnitude : magnitude;
}

ATOLL_INLINE float load_bf16(const std::byte* from) {
  return float_of(static_cast<uint32_t>(load<uint16_t>(from)) << 16);
}

template <typename T>
ATOLL_INLINE void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace atl::codec
