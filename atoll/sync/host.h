#pragma once
// The bridge from tensors (any device) to the spans that codec and collective work on.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

namespace atl::sync {

/// A zeroed host buffer of the tensor's length, FP32.
at::Tensor host_buffer(const at::Tensor& like_P);

/// The memory of a contiguous FP32 host tensor.
std::span<float> span_of(const at::Tensor& host_P);

/// The same memory as bytes, for digests.
std::span<const std::byte> bytes_of(const at::Tensor& host_P);

}  // namespace atl::sync
