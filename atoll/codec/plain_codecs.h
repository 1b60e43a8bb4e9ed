#pragma once
// The codecs that treat each value on its own: all 32 bits of a float, or a shorter float.
#include <memory>

#include "atoll/codec/codec.h"

namespace atl::codec {

/// The values as they are: 32 bits, no error.
std::unique_ptr<Codec> make_fp32_codec();

/// bfloat16: sign, 8 bits of exponent, 7 of mantissa; round to nearest, ties to even. Error at most
/// 2^-8 of the value (2^-134 for subnormal ones).
std::unique_ptr<Codec> make_bf16_codec();

/// IEEE half precision: sign, 5 bits of exponent, 10 of mantissa; round to nearest, ties to even.
/// Error at most 2^-11 of the value, or 2^-25; magnitudes from 65520 on are refused.
std::unique_ptr<Codec> make_fp16_codec();

}  // namespace atl::codec
