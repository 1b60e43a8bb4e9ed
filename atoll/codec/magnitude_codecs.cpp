#include "atoll/codec/magnitude_codecs.h"

#include "atoll/codec/block_codec.h"

namespace atl::codec {
namespace {

/// 2^-100. From here on, bf16 magnitudes that differ do so by a normal number.
constexpr uint32_t kTinyBits = (127 - 100) << 23;

/// Of a magnitude: subnormal ones count as zero on every thread.
ATOLL_INLINE float without_subnormal(uint32_t magnitude) {
  return float_of(magnitude < kSmallestNormal ? 0 : magnitude);
}

ATOLL_INLINE uint32_t smallest_magnitude(const float* values, size_t count) {
  uint32_t smallest = kInfinityBits;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = magnitude_bits(values[i]);
    smallest = magnitude < smallest ? magnitude : smallest;
  }
  return smallest;
}

constexpr size_t kSign3Block = 128;
constexpr size_t kSign3Bytes = 4 + kSign3Block / 2;

ATOLL_CLONES size_t encode_sign3(const float* values, size_t count, std::byte* body) {
  return for_each_block<kSign3Block, kSign3Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    const uint32_t largest = largest_magnitude(values + begin, size);
    if (largest >= kTooLargeBits) return false;
    const uint32_t smallest = smallest_magnitude(values + begin, size);
    const uint32_t high = largest < kTinyBits ? 0 : round_to_bf16(largest);
    const uint32_t low = high == 0 || smallest < kSmallestNormal ? 0 : round_to_bf16(smallest);
    store(static_cast<uint16_t>(low), body + at);
    store(static_cast<uint16_t>(high), body + at + 2);
    const float lowest = float_of(low << 16);
    const float step = (float_of(high << 16) - lowest) / 7.0F;
    const float inverse = high == low ? 0.0F : 1.0F / step;
    pack_nibbles(values + begin, size, body + at + 4, [&](float value) {
      int32_t code = round_to_int((float_of(magnitude_bits(value)) - lowest) * inverse);
      code = code < 0 ? 0 : code;
      code = code > 7 ? 7 : code;
      return static_cast<uint32_t>(code) | ((bits_of(value) >> 28) & 8);
    });
    return true;
  });
}

ATOLL_CLONES size_t decode_sign3(const std::byte* body, size_t count, float* values) {
  return for_each_block<kSign3Block, kSign3Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    const float low = load_bf16(body + at);
    const float high = load_bf16(body + at + 2);
    const bool is_zero = bits_of(high) == 0;
    if (bits_of(high) >= kInfinityBits || (!is_zero && bits_of(high) < kTinyBits)) return false;
    if (bits_of(low) > bits_of(high)) return false;
    if (bits_of(low) != 0 && bits_of(low) < kSmallestNormal) return false;
    const float step = (high - low) / 7.0F;
    unpack_nibbles(body + at + 4, size, values + begin, [&](uint32_t nibble) {
      const float magnitude = low + static_cast<float>(static_cast<int32_t>(nibble & 7)) * step;
      return float_of(bits_of(magnitude) | (nibble & 8) << 28);
    });
    return true;
  });
}

constexpr size_t kStat2Block = 64;
constexpr size_t kStat2Bytes = 4 + kStat2Block / 4;

ATOLL_INLINE uint32_t level_bits(double mean) {
  const auto level = static_cast<float>(mean < 0x1p-100 ? 0.0 : mean);
  return round_to_bf16(bits_of(level));
}

size_t encode_stat2(const float* values, size_t count, std::byte* body) {
  return for_each_block<kStat2Block, kStat2Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    const float* const block = values + begin;
    if (largest_magnitude(block, size) >= kTooLargeBits) return false;
    double sum = 0;
    for (size_t i = 0; i < size; ++i) sum += without_subnormal(magnitude_bits(block[i]));
    const double mean = sum / static_cast<double>(size);
    double sum_high = 0;
    double sum_low = 0;
    size_t num_high = 0;
    std::byte* const codes = body + at + 4;
    const size_t height = (size + 3) / 4;
    for (size_t j = 0; j < height; ++j) codes[j] = std::byte{0};
    for (size_t i = 0; i < size; ++i) {
      const double magnitude = without_subnormal(magnitude_bits(block[i]));
      const bool is_high = magnitude > mean;
      sum_high += is_high ? magnitude : 0.0;
      sum_low += is_high ? 0.0 : magnitude;
      num_high += is_high ? 1 : 0;
      const uint32_t code = (bits_of(block[i]) >> 31) << 1 | (is_high ? 1 : 0);
      codes[i % height] |= static_cast<std::byte>(code << (2 * (i / height)));
    }
    const uint32_t low = level_bits(sum_low / static_cast<double>(size - num_high));
    const uint32_t high =
        num_high == 0 ? low : level_bits(sum_high / static_cast<double>(num_high));
    store(static_cast<uint16_t>(low), body + at);
    store(static_cast<uint16_t>(high), body + at + 2);
    return true;
  });
}

size_t decode_stat2(const std::byte* body, size_t count, float* values) {
  return for_each_block<kStat2Block, kStat2Bytes>(count, [&](size_t begin, size_t size, size_t at) {
    const float levels[2] = {load_bf16(body + at), load_bf16(body + at + 2)};
    for (const float level : levels) {
      const uint32_t bits = bits_of(level);
      if (bits != 0 && (bits < kSmallestNormal || bits >= kInfinityBits)) return false;
    }
    const std::byte* const codes = body + at + 4;
    const size_t height = (size + 3) / 4;
    for (size_t i = 0; i < size; ++i) {
      const uint32_t code = static_cast<uint32_t>(codes[i % height]) >> (2 * (i / height));
      values[begin + i] = float_of(bits_of(levels[code & 1]) | (code & 2) << 30);
    }
    return true;
  });
}

/// Half a step, at most a fourteenth of the largest, and the rounding of lo and hi.
constexpr BlockFormat kSign3Format = {
    .name = "sign3",
    .kind = 7,
    .block_size = kSign3Block,
    .scale_bytes = 4,
    .code_bits = 4,
    .error_bound = {.absolute = 0x1p-100,
                    .of_largest = 1.0 / 14 + 0x1p-7,
                    .block_size = kSign3Block},
    .encode = encode_sign3,
    .decode = decode_sign3,
};

/// The levels are means: between the smallest and the largest magnitude, but for rounding.
constexpr BlockFormat kStat2Format = {
    .name = "stat2",
    .kind = 8,
    .block_size = kStat2Block,
    .scale_bytes = 4,
    .code_bits = 2,
    .error_bound = {.absolute = 0x1p-100, .of_largest = 1 + 0x1p-8, .block_size = kStat2Block},
    .encode = encode_stat2,
    .decode = decode_stat2,
};

}  // namespace

std::unique_ptr<Codec> make_sign3_codec() { return std::make_unique<BlockCodec>(kSign3Format); }
std::unique_ptr<Codec> make_stat2_codec() { return std::make_unique<BlockCodec>(kStat2Format); }

}  // namespace atl::codec
