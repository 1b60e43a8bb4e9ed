#pragma once
// The dense codecs as tensor operations: values that lie on a device are encoded there, and only
// encoded bytes cross to the host. The bytes are those of Codec::encode, to the bit, because
// islands on CPUs and on GPUs train together and compare digests. So the operations are those of
// the codecs' own loops: on the bits of the floats as integers wherever these use integers, and
// elsewhere only products, quotients and roundings that IEEE 754 leaves no choice in and that no
// subnormal number takes part in.
//
// Codecs without tensor operations (sign3, stat2, those that keep some of the values) get a copy of
// the values and encode it on the host.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "atoll/base/bytes.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/averager.h"

namespace atl::sync {

/// Codec::accepts of contiguous FP32 values (N,) on any device; one number crosses.
bool accepts(const codec::Codec& codec, const at::Tensor& values_N);

/// Codec::encode of contiguous FP32 values (N,) on any device. Throws InputError as it does.
void encode(const codec::Codec& codec, const at::Tensor& values_N, Bytes& out,
            uint32_t sequence = 0);

/// `values_N`, contiguous FP32 on any device, for a round. Another thread may encode them; it does
/// not wait for what this one has the device do later. `codec` must outlive the round, and the
/// values must not change in it.
collective::DeviceValues device_values(const at::Tensor& values_N, const codec::Codec& codec);

}  // namespace atl::sync
