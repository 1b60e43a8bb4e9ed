#pragma once
// The order of rows in a pass: numpy's Generator(PCG64(seed + pass + 1)).shuffle(arange(n)), bit
// for bit, which is OLMo-core's order (its epochs count from 1, our passes from 0). Pure functions.
#include <cstdint>
#include <vector>

#include "atoll/data/numpy_random.h"

namespace atl::data {

/// The numbers 0 ... count-1 as OLMo's loaders shuffle them. count is below 2^32.
std::vector<uint32_t> shuffled_range(Pcg64::Uint128 seed, int64_t count);

/// The rows 0 ... num_rows-1 in the order of pass `pass` (from 0). num_rows is below 2^32.
std::vector<uint32_t> sample_order(uint64_t seed, int64_t pass, int64_t num_rows);

}  // namespace atl::data
