#pragma once
// Which values are the largest by magnitude, without sorting. Of equal magnitudes those at the
// lower positions count as larger, so the choice is one, however it is found.
#include <cstddef>
#include <cstdint>
#include <span>

namespace atl::codec {

/// Writes the indices of the num_kept largest values, each plus `offset`, in ascending order to
/// `positions`. Values are finite; num_kept is from 1 to values.size().
void list_largest(std::span<const float> values, size_t num_kept, uint32_t offset,
                  uint32_t* positions);

}  // namespace atl::codec
