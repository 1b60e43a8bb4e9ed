// Shapes: N values; B blocks of S values; K bytes of an encoded block.
#include "atoll/sync/device_codec.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/round.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/codec/float_bits.h"
#include "atoll/codec/integer_codecs.h"
#include "atoll/sync/host.h"

namespace atl::sync {
namespace {

constexpr int32_t kMagnitude = 0x7fff'ffff;       // All bits of a float but its sign.
constexpr int32_t kUpperHalf = ~int32_t{0xffff};  // Those that a bfloat16 has.
constexpr int32_t kTinyBits = codec::kTinyBits;

/// The largest of each row, (B, 1).
at::Tensor row_max(const at::Tensor& x_BS) { return x_BS.amax(1, /*keepdim=*/true); }

/// A number on the device of `like`. To divide by a number of the host is another operation on a
/// GPU: a product with its reciprocal, rounded twice.
at::Tensor number(float value, const at::Tensor& like) {
  return at::full({}, value, like.options().dtype(at::kFloat));
}

/// From the bits of accepted floats to those of the nearest bfloat16s: codec::round_to_bf16.
at::Tensor round_to_bf16(const at::Tensor& bits) {
  const at::Tensor is_odd = bits.bitwise_right_shift(16).bitwise_and_(1);
  return is_odd.add_(bits).add_(0x7fff).bitwise_and_(kUpperHalf);
}

/// Of the bits (B, S) of bfloat16s: their bytes (B, 2 S).
at::Tensor upper_halves(const at::Tensor& bits_BS) {
  return bits_BS.unsqueeze(-1).view(at::kByte).slice(-1, 2, 4).flatten(1);
}

/// values / scale as the block codecs take it, rounded: the product with 1 / scale, ties to even;
/// zeros where the scale is zero.
at::Tensor multiples(const at::Tensor& values_BS, const at::Tensor& scale_bits_B1) {
  const at::Tensor scale_B1 = scale_bits_B1.view(at::kFloat);
  const at::Tensor inverse_B1 =
      at::div(number(1, scale_B1), scale_B1).masked_fill_(scale_bits_B1.eq(0), 0);
  return at::round(values_BS.mul(inverse_B1));
}

/// Codes of 0 to 15 as bytes (B, K), in the planes of codec/block_codec.h.
at::Tensor pack_nibbles(const at::Tensor& codes_BS) {
  const int64_t size = codes_BS.size(1);
  const int64_t half = (size + 1) / 2;
  const at::Tensor bytes_BK = codes_BS.slice(1, 0, half).clone();
  const at::Tensor second_BK = codes_BS.slice(1, half, size).bitwise_left_shift(4);
  bytes_BK.slice(1, 0, size - half).bitwise_or_(second_BK);
  return bytes_BK;
}

// One function for each codec: blocks (B, S) of values that it accepts to their bytes (B, K).

at::Tensor encode_fp32(const at::Tensor& values_BS) { return values_BS.view(at::kByte); }

at::Tensor encode_bf16(const at::Tensor& values_BS) {
  return upper_halves(round_to_bf16(values_BS.view(at::kInt)));
}

/// The conversion rounds to nearest, ties to even, subnormal halves too: on every device.
at::Tensor encode_fp16(const at::Tensor& values_BS) {
  return values_BS.to(at::kHalf).view(at::kByte);
}

at::Tensor encode_int8(const at::Tensor& values_BS) {
  const at::Tensor largest_B1 = row_max(values_BS.view(at::kInt).bitwise_and(kMagnitude));
  const at::Tensor step_B1 = at::div(largest_B1.view(at::kFloat), number(127, values_BS));
  const at::Tensor scale_B1 =
      round_to_bf16(step_B1.view(at::kInt)).masked_fill_(largest_B1.lt(kTinyBits), 0);
  const at::Tensor codes_BS = multiples(values_BS, scale_B1).to(at::kChar).view(at::kByte);
  return at::cat({upper_halves(scale_B1), codes_BS}, 1);
}

at::Tensor encode_int4(const at::Tensor& values_BS) {
  constexpr int32_t kDivideBy8 = 3 << 23;  // Off the exponent.
  const at::Tensor bits_BS = values_BS.view(at::kInt);
  const at::Tensor magnitudes_BS = bits_BS.bitwise_and(kMagnitude);
  const at::Tensor largest_B1 = row_max(magnitudes_BS);
  const at::Tensor negative_B1 = row_max(magnitudes_BS.masked_fill_(bits_BS.ge(0), 0));
  const at::Tensor sign_B1 = largest_B1.gt(negative_B1).to(at::kInt).bitwise_left_shift_(31);
  const at::Tensor scale_B1 = round_to_bf16(largest_B1)
                                  .sub_(kDivideBy8)
                                  .bitwise_or_(sign_B1)
                                  .masked_fill_(largest_B1.lt(kTinyBits), 0);
  const at::Tensor codes_BS = multiples(values_BS, scale_B1).clamp_max_(7).to(at::kChar);
  const at::Tensor nibbles_BS = codes_BS.bitwise_and(15).view(at::kByte);
  return at::cat({upper_halves(scale_B1), pack_nibbles(nibbles_BS)}, 1);
}

at::Tensor encode_e3m0(const at::Tensor& values_BS) {
  constexpr int32_t kHalf = 0x0040'0000;  // As in codec/e3m0.cpp.
  const at::Tensor bits_BS = values_BS.view(at::kInt);
  const at::Tensor magnitudes_BS = bits_BS.bitwise_and(kMagnitude);
  const at::Tensor exponents_BS = magnitudes_BS.add(kHalf).bitwise_right_shift_(23);
  const at::Tensor top_B1 = row_max(exponents_BS);
  const at::Tensor first_B1 = top_B1.sub(7).clamp_min_(0).bitwise_left_shift_(23).clamp_min_(kHalf);
  const at::Tensor signs_BS = bits_BS.bitwise_right_shift(28).bitwise_and_(8);
  const at::Tensor codes_BS =
      exponents_BS.sub_(top_B1).add_(7).clamp_min_(1).bitwise_or_(signs_BS).masked_fill_(
          magnitudes_BS.lt(first_B1), 0);
  return at::cat({top_B1.to(at::kByte), pack_nibbles(codes_BS.to(at::kByte))}, 1);
}

struct DeviceCodec {
  std::string_view name;
  at::Tensor (*encode)(const at::Tensor& values_BS);
};
constexpr DeviceCodec kDeviceCodecs[] = {
    {"bf16", encode_bf16}, {"e3m0", encode_e3m0}, {"fp16", encode_fp16},
    {"fp32", encode_fp32}, {"int4", encode_int4}, {"int8", encode_int8},
};

/// The body of an encoding, on the device. The whole blocks at once, then the rest as a shorter
/// one; codecs without blocks take the values as one.
at::Tensor encode_body(const DeviceCodec& device_codec, size_t block_size,
                       const at::Tensor& values_N) {
  const int64_t count = values_N.numel();
  const int64_t size =
      block_size == 0 ? std::max<int64_t>(count, 1) : static_cast<int64_t>(block_size);
  const int64_t whole = count - count % size;
  const at::Tensor blocks_BS = values_N.slice(0, 0, whole).view({whole / size, size});
  const at::Tensor body = device_codec.encode(blocks_BS).flatten();
  if (whole == count) return body;
  const at::Tensor rest_BS = values_N.slice(0, whole, count).unsqueeze(0);
  return at::cat({body, device_codec.encode(rest_BS).flatten()});
}

/// A stream that goes on from where this thread's stream of the device is now. Training threads are
/// far ahead of their device; what is on this stream does not wait for what they give it later.
/// None where the device has no streams.
std::optional<c10::Stream> fork_stream(at::Device device) {
  if (!device.is_cuda()) return std::nullopt;
  const c10::impl::VirtualGuardImpl streams(device.type());
  const c10::Stream fork = streams.getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  c10::Event here(device.type());
  here.record(streams.getStream(device));
  here.block(fork);
  return fork;
}

}  // namespace

bool accepts(const codec::Codec& codec, const at::Tensor& values_N) {
  ATOLL_CHECK(values_N.is_contiguous() && values_N.scalar_type() == at::kFloat);
  if (values_N.numel() == 0) return true;
  // As bits: those of infinities and NaN are above all others.
  const auto most = static_cast<int32_t>(codec::bits_of(codec.largest()));
  return values_N.view(at::kInt).bitwise_and(kMagnitude).amax().item<int32_t>() <= most;
}

void encode(const codec::Codec& codec, const at::Tensor& values_N, Bytes& out, uint32_t sequence) {
  const auto* const found = std::ranges::find(kDeviceCodecs, codec.name(), &DeviceCodec::name);
  // What is not accepted the codec refuses itself, in its own words.
  if (found == std::end(kDeviceCodecs) || !accepts(codec, values_N)) {
    const at::Tensor host_N = values_N.cpu();
    codec.encode(span_of(host_N), out, sequence);
    return;
  }
  const at::Tensor body = encode_body(*found, codec.error_bound().block_size, values_N);
  const auto count = static_cast<size_t>(values_N.numel());
  const Bytes header = codec.header(count, sequence);
  const size_t begin = out.size() + header.size();
  out.insert(out.end(), header.begin(), header.end());
  out.resize(begin + static_cast<size_t>(body.numel()));
  ATOLL_CHECK(header.size() + static_cast<size_t>(body.numel()) == codec.max_encoded_bytes(count));
  at::from_blob(out.data() + begin, {body.numel()}, at::kByte).copy_(body);
}

collective::DeviceValues device_values(const at::Tensor& values_N, const codec::Codec& codec) {
  return {.count = static_cast<size_t>(values_N.numel()),
          .encode = [values_N, &codec, stream = fork_stream(values_N.device())](
                        size_t begin, size_t size, uint32_t sequence, Bytes& out) {
            const c10::OptionalStreamGuard on_stream(stream);
            const auto first = static_cast<int64_t>(begin);
            const auto end = static_cast<int64_t>(begin + size);
            sync::encode(codec, values_N.slice(0, first, end), out, sequence);
          }};
}

}  // namespace atl::sync
