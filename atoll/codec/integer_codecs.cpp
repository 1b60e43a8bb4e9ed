#include "atoll/codec/integer_codecs.h"

#include "atoll/codec/block_codec.h"

namespace atl::codec {
namespace {

/// Scales that give normal or zero multiples: zero, or normal and below `limit`.
ATOLL_INLINE bool is_scale(float scale, float limit) {
  const uint32_t magnitude = magnitude_bits(scale);
  return magnitude == 0 || (magnitude >= kSmallestNormal && magnitude < bits_of(limit));
}

constexpr size_t kInt8Block = 256;
constexpr size_t kInt8Bytes = 2 + kInt8Block;

/// Asks for the values of a block to come. Where memory is read once, in order, the processor does
/// so by itself; here each block is read twice, which makes it late by a fifth of the time.
ATOLL_INLINE void prefetch_later_block(const float* values, size_t begin, size_t count) {
  constexpr size_t kAhead = 2 * kInt8Block;
  constexpr size_t kLine = 16;  // Floats in 64 bytes.
  if (count - begin < kAhead + kInt8Block) return;
  for (size_t i = 0; i < kInt8Block; i += kLine) __builtin_prefetch(values + begin + kAhead + i);
}

ATOLL_CLONES size_t encode_int8(const float* values, size_t count, std::byte* body) {
  return for_each_block<kInt8Block, kInt8Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    prefetch_later_block(values, begin, count);
    const float* const block = values + begin;
    const uint32_t largest = largest_magnitude(block, size);
    if (largest >= kTooLargeBits) return false;
    const uint32_t scale =
        largest < kTinyBits ? 0 : round_to_bf16(bits_of(float_of(largest) / 127.0F));
    store(static_cast<uint16_t>(scale), body + at);
    const float inverse = scale == 0 ? 0.0F : 1.0F / float_of(scale << 16);
    std::byte* const codes = body + at + 2;
    for (size_t i = 0; i < size; ++i) {
      codes[i] = static_cast<std::byte>(round_to_int(block[i] * inverse));
    }
    return true;
  });
}

ATOLL_CLONES size_t decode_int8(const std::byte* body, size_t count, float* values) {
  return for_each_block<kInt8Block, kInt8Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    const float scale = load_bf16(body + at);
    if (!is_scale(scale, 0x1p121F)) return false;  // -128 times it is finite.
    const std::byte* const codes = body + at + 2;
    for (size_t i = 0; i < size; ++i) {
      values[begin + i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
    }
    return true;
  });
}

constexpr size_t kInt4Block = 128;
constexpr size_t kInt4Bytes = 2 + kInt4Block / 2;

/// The magnitude bits of the largest positive and of the most negative value. As integers, the
/// signed maximum is the former and the unsigned one the latter, if there are any of that sign.
struct Extremes {
  uint32_t positive, negative;
};
ATOLL_INLINE Extremes extremes(const float* values, size_t count) {
  int32_t highest = 0;
  uint32_t lowest = kSignBit;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = bits_of(values[i]);
    highest = static_cast<int32_t>(bits) > highest ? static_cast<int32_t>(bits) : highest;
    lowest = bits > lowest ? bits : lowest;
  }
  return {static_cast<uint32_t>(highest), lowest & ~kSignBit};
}

ATOLL_CLONES size_t encode_int4(const float* values, size_t count, std::byte* body) {
  return for_each_block<kInt4Block, kInt4Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    const auto [positive, negative] = extremes(values + begin, size);
    const uint32_t largest = positive > negative ? positive : negative;
    if (largest >= kTooLargeBits) return false;
    constexpr uint32_t kDivideBy8 = 3 << 7;  // Off the exponent of a bf16.
    uint32_t scale = largest < kTinyBits ? 0 : round_to_bf16(largest) - kDivideBy8;
    if (scale != 0 && positive > negative) scale |= kSignBit >> 16;
    store(static_cast<uint16_t>(scale), body + at);
    const float inverse = scale == 0 ? 0.0F : 1.0F / float_of(scale << 16);
    pack_nibbles(values + begin, size, body + at + 2, [&](float value) {
      const int32_t code = round_to_int(value * inverse);
      return static_cast<uint32_t>(code > 7 ? 7 : code) & 15;
    });
    return true;
  });
}

ATOLL_CLONES size_t decode_int4(const std::byte* body, size_t count, float* values) {
  return for_each_block<kInt4Block, kInt4Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    const float scale = load_bf16(body + at);
    if (!is_scale(scale, 0x1p125F)) return false;  // -8 times it is finite.
    unpack_nibbles(body + at + 2, size, values + begin, [&](uint32_t nibble) {
      return static_cast<float>(static_cast<int32_t>(nibble ^ 8) - 8) * scale;
    });
    return true;
  });
}

/// Half a step of m / 127, which rounding to bf16 may have widened by 2^-8.
constexpr BlockFormat kInt8Format = {
    .name = "int8",
    .kind = 5,
    .block_size = kInt8Block,
    .scale_bytes = 2,
    .code_bits = 8,
    .error_bound = {.absolute = 0x1p-118,
                    .of_largest = (1 + 0x1p-7) / 254,
                    .block_size = kInt8Block},
    .encode = encode_int8,
    .decode = decode_int8,
};

/// At worst a value of magnitude m on the side that ends at 7/8 of m, less the rounding to bf16.
constexpr BlockFormat kInt4Format = {
    .name = "int4",
    .kind = 6,
    .block_size = kInt4Block,
    .scale_bytes = 2,
    .code_bits = 4,
    .error_bound = {.absolute = 0x1p-118, .of_largest = 1.0 / 8 + 0x1p-8, .block_size = kInt4Block},
    .encode = encode_int4,
    .decode = decode_int4,
};

}  // namespace

std::unique_ptr<Codec> make_int8_codec() { return std::make_unique<BlockCodec>(kInt8Format); }
std::unique_ptr<Codec> make_int4_codec() { return std::make_unique<BlockCodec>(kInt4Format); }

}  // namespace atl::codec
