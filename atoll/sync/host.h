#pragma once
// The bridge from tensors (any device) to the spans that codec and collective work on.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "atoll/base/hash.h"

namespace atl::sync {

/// A zeroed host buffer of the tensor's length, FP32.
at::Tensor host_buffer(const at::Tensor& like_P);

/// The memory of a contiguous FP32 host tensor.
std::span<float> span_of(const at::Tensor& host_P);

/// The same memory as bytes, for digests.
std::span<const std::byte> bytes_of(const at::Tensor& host_P);

/// FP32 values in host memory, to be copied from.
at::Tensor view_of(std::span<const std::byte> bytes);

/// A fast hash (xxHash, 64 bits) in the form of a digest: it finds mistakes, not malice.
Digest quick_digest(std::span<const std::byte> bytes);

/// Of methods that step at every round: the result is equal by construction, and what each replica
/// makes of it (clip, optimiser) is not; the parameters before this step show it.
Digest step_digest(const at::Tensor& result_P, const at::Tensor& live_P);

}  // namespace atl::sync
