#pragma once
// The bridge from tensors (any device) to the spans that codec and collective work on.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "atoll/base/hash.h"
#include "atoll/collective/averager.h"

namespace atl::sync {

/// A zeroed host buffer of the tensor's length, FP32.
at::Tensor host_buffer(const at::Tensor& like_P);

/// The memory of a contiguous FP32 host tensor.
std::span<float> span_of(const at::Tensor& host_P);

/// The same memory as bytes, for digests.
std::span<const std::byte> bytes_of(const at::Tensor& host_P);

/// Whether no value is infinite or not a number.
bool all_finite(std::span<const float> values);

/// For methods that send the mean without error feedback: between two members gathering costs no
/// more bytes than scattering, quantises once instead of twice, and takes one trip.
collective::Topology topology_for(int num_members);

/// A fast hash (xxHash, 64 bits) in the form of a digest: it finds mistakes, not malice.
Digest quick_digest(std::span<const std::byte> bytes);

}  // namespace atl::sync
