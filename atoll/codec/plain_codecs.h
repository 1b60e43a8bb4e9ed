#pragma once
// The codecs that keep a float's own form: all 32 bits, or the upper 16 (bfloat16).
#include <memory>

#include "atoll/codec/codec.h"

namespace atl::codec {

/// The values as they are: 32 bits, no error.
std::unique_ptr<Codec> make_fp32_codec();

/// bfloat16: sign, 8 bits of exponent, 7 of mantissa; round to nearest, ties to even. Error at most
/// 2^-8 of the value (2^-134 for subnormal ones).
std::unique_ptr<Codec> make_bf16_codec();

}  // namespace atl::codec
