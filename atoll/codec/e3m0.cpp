#include "atoll/codec/e3m0.h"

#include "atoll/codec/block_codec.h"

namespace atl::codec {
namespace {

constexpr size_t kBlock = 128;
constexpr size_t kBlockBytes = 1 + kBlock / 2;

/// Added before the mantissa is cut off: from 1.5 * 2^e on, the exponent becomes that of 2^(e+1).
constexpr uint32_t kHalf = 0x0040'0000;

ATOLL_CLONES size_t encode_blocks(const float* values, size_t count, std::byte* body) {
  return for_each_block<kBlock, kBlockBytes>(count, [&](size_t begin, size_t size, size_t at) {
    const float* const block = values + begin;
    const uint32_t largest = largest_magnitude(block, size);
    if (largest >= kTooLargeBits) return false;
    const auto top = static_cast<int32_t>((largest + kHalf) >> 23);
    body[at] = static_cast<std::byte>(top);
    // Half of the smallest power, 2^(top - 6) or the smallest normal number. kHalf is 2^-127.
    const uint32_t first = top >= 8 ? static_cast<uint32_t>(top - 7) << 23 : kHalf;
    pack_nibbles(block, size, body + at + 1, [&](float value) {
      const uint32_t magnitude = magnitude_bits(value);
      int32_t code = static_cast<int32_t>((magnitude + kHalf) >> 23) - top + 7;
      code = code < 1 ? 1 : code;
      const uint32_t sign = (bits_of(value) >> 28) & 8;
      return magnitude < first ? 0 : static_cast<uint32_t>(code) | sign;
    });
    return true;
  });
}

ATOLL_CLONES size_t decode_blocks(const std::byte* body, size_t count, float* values) {
  return for_each_block<kBlock, kBlockBytes>(count, [&](size_t begin, size_t size, size_t at) {
    const auto top = static_cast<int32_t>(body[at]);
    if (top == 255) return false;  // Its powers are infinite.
    unpack_nibbles(body + at + 1, size, values + begin, [&](uint32_t nibble) {
      const auto code = static_cast<int32_t>(nibble & 7);
      const int32_t exponent = code + top - 7;
      const bool is_zero = code == 0 || exponent < 1;
      const uint32_t bits = static_cast<uint32_t>(exponent) << 23 | (nibble & 8) << 28;
      return float_of(is_zero ? 0 : bits);
    });
    return true;
  });
}

/// Between two powers the error is at most a third of the value (0.5 of 1.5). Below the smallest,
/// P, it is at most P / 2, and P <= 4/3 of the largest / 64.
constexpr BlockFormat kFormat = {
    .name = "e3m0",
    .kind = 4,
    .block_size = kBlock,
    .scale_bytes = 1,
    .code_bits = 4,
    .error_bound = {.relative = 1.0 / 3,
                    .absolute = 0x1p-127,
                    .of_largest = 1.0 / 96,
                    .block_size = kBlock},
    .encode = encode_blocks,
    .decode = decode_blocks,
};

}  // namespace

std::unique_ptr<Codec> make_e3m0_codec() { return std::make_unique<BlockCodec>(kFormat); }

}  // namespace atl::codec
