#pragma once
// Zeros on the CPU whose memory is taken from the system where it is touched, and can be given back
// in between: who shares parameters among processes has an address for each, and memory for what it
// reads now.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace atl::model {

/// (size,). Throws InputError where there is no room.
at::Tensor page_zeros(int64_t size, at::ScalarType type);

/// A contiguous slice of what page_zeros() made is zero now, and its whole pages take no memory.
void forget(const at::Tensor& values);

}  // namespace atl::model
