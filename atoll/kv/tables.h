#pragma once
// The tables of all channels of some planes: those that were fitted to a model before, or those of
// the values themselves, which then travel with them.
//
// Shapes: P = planes (a layer's keys, or its values), C = channels of a plane, T = tokens.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {

/// Appends tables (P, C) of these values to `out` and returns them: of each plane one for each
/// channel, or one for all, whichever is fewer bits in all.
std::vector<ValueTable> write_tables(std::span<const int16_t> values_PCT, size_t num_planes,
                                     size_t num_channels, Bytes& out);

/// Throws InputError where they are none.
std::vector<ValueTable> read_tables(ByteReader& in, size_t num_planes, size_t num_channels);

}  // namespace atl::kv
