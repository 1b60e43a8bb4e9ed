#pragma once
// The tables of all channels of some planes: those that were fitted to a model before, or those of
// the values themselves, which then travel with them.
//
// Shapes: P = planes (a layer's keys, or its values), C = channels of a plane, T = tokens.
#include <cstdint>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {

/// Appends the numbers to `out`: by these tables (P, C), or, where there are none, by their own.
void encode_planes(std::span<const int16_t> values_PCT, size_t num_planes, size_t num_channels,
                   std::span<const ValueTable> tables_PC, Bytes& out);

/// With the same tables, or none as there. Throws InputError where that is not what `in` holds.
void decode_planes(ByteReader& in, size_t num_planes, size_t num_channels,
                   std::span<const ValueTable> tables_PC, std::span<int16_t> values_PCT);

/// A channel's table that was made for these values, and the bits that they cost with it.
struct FittedTable {
  ValueTable table;
  double bits = 0;
};
FittedTable fit_table(std::span<const int16_t> values_T);

}  // namespace atl::kv
