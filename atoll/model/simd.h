#pragma once
// What the loops of kernels and attention kernels are built with. Only for those.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "atoll/base/clones.h"
#include "atoll/codec/float_bits.h"

namespace atl::model {

/// Loops compute in FP32 on whatever lies in memory.
ATOLL_INLINE float widen(float x) { return x; }
ATOLL_INLINE float widen(c10::BFloat16 x) {
  return codec::float_of(static_cast<uint32_t>(x.x) << 16);
}

/// To the nearest, ties to even, as hardware rounds; NaN stays NaN. c10's own has a jump, which
/// keeps loops scalar.
template <typename T>
ATOLL_INLINE T narrow(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    const uint32_t rounded = codec::round_to_bf16(codec::bits_of(x));
    const bool is_nan = codec::magnitude_bits(x) > codec::kInfinityBits;
    return T(static_cast<uint16_t>(is_nan ? 0x7fc0 : rounded), T::from_bits());
  }
}

/// Rows per task: enough elements that handing it out costs nothing.
inline int64_t grain(int64_t elements_per_row) {
  return std::max<int64_t>(1, 32'768 / std::max<int64_t>(1, elements_per_row));
}

/// e^x, relative error below 1e-7, for x from -87 to 88 (outside, the value at the bound). Written
/// so that loops over it vectorise: x = k ln 2 + r, then a polynomial in r (Cephes' coefficients).
ATOLL_INLINE float fast_exp(float x) {
  // Two bounds of the same x: one after the other, GCC makes jumps of them, and where registers
  // have no masks (before AVX-512) the loop then stays scalar.
  const float at_least = x < -87.0F ? -87.0F : x;
  const float at_most = x > 88.0F ? 88.0F : x;
  x = x < 0.0F ? at_least : at_most;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to a whole number.
  const float shifted = x * 1.44269504F + kRound;
  const float k = shifted - kRound;
  const float r = (x - k * 0.693359375F) - k * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  return p * std::bit_cast<float>((exponent + 127) << 23);
}

}  // namespace atl::model
