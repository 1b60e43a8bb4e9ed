#pragma once
// Level 0: keys and values as they are, to the bit. Exponents of a channel are much alike and are
// coded; signs and mantissas are not, and travel as they are: about 10.5 of a bfloat16's 16 bits.
//
// Shapes: P = planes (a layer's keys, or its values), C = channels of a plane, T = tokens.
#include <cstdint>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {

/// Appends them to `out`; the bits of bfloat16s. `tables_PC`: of a model's exponents, which whoever
/// decodes has too; none: they travel with them.
void encode_exact(std::span<const uint16_t> kv_PCT, size_t num_planes, size_t num_channels,
                  std::span<const ValueTable> tables_PC, Bytes& out);

/// With the same tables. Throws InputError where that is not what `in` holds.
void decode_exact(ByteReader& in, size_t num_planes, size_t num_channels,
                  std::span<const ValueTable> tables_PC, std::span<uint16_t> kv_PCT);

/// What tables for encode_exact() are of.
int16_t exponent_of(uint16_t bf16);

}  // namespace atl::kv
