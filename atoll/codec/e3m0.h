#pragma once
// Four bits that are a sign and an exponent, without a mantissa: what Streaming DiLoCo sends.
#include <memory>

#include "atoll/codec/codec.h"

namespace atl::codec {

/// E3M0 (Douillard et al. 2025, 2501.18512) with an exponent shared by each block of 128 values;
/// 4.0625 bits per value. The paper leaves the scale and the rounding open; ours:
///
///   The scale, a byte E, is the exponent (as a float stores it) of the power of two nearest to the
///   block's largest magnitude; two are equally near at 1.5 * 2^e, the larger counts.
///   A code is sign * 8 + c. c = 0 is the value 0; c = 1..7 is 2^(E - 127 - 7 + c).
///   A magnitude takes the nearest of these eight values (ties upwards), but from half of the
///   smallest power on: that power. Zero has no sign.
///
/// Powers below 2^-126 are not used, so E = 0 is a block of zeros.
std::unique_ptr<Codec> make_e3m0_codec();

}  // namespace atl::codec
