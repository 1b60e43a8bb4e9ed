#pragma once
// Whole numbers times a scale per block: int8 and int4.
#include <cstdint>
#include <memory>

#include "atoll/codec/codec.h"

namespace atl::codec {

/// The bits of 2^-118. From this largest magnitude of a block on, its scale is a normal number with
/// room to spare.
constexpr uint32_t kTinyBits = (127 - 118) << 23;

/// Blocks of 256 values; 8.0625 bits per value. With m the block's largest magnitude:
///
///   s = bf16(m / 127), q = round(x / s) in -127..127 (as x * (1 / s), ties to even), x ~ q s.
///
/// The scale goes first. Blocks with m below 2^-118 become zeros (s = 0).
std::unique_ptr<Codec> make_int8_codec();

/// Blocks of 128 values; 4.125 bits per value. CocktailSGD's grid (Wang et al. 2023), -8..7 eighths
/// of the largest magnitude m, turned so that the value furthest from zero lies at -8 and is exact
/// to 2^-9; the original always clips a positive one to 7/8:
///
///   s = bf16(m) / 8, negative when only a positive value has the magnitude m,
///   q = min(round(x / s), 7) in -8..7, x ~ q s; the code is q mod 16.
///
/// The scale, a bf16, goes first. Blocks with m below 2^-118 become zeros (s = 0).
std::unique_ptr<Codec> make_int4_codec();

}  // namespace atl::codec
