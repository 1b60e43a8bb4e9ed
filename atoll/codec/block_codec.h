#pragma once
// The frame of the codecs that cut the values into blocks: each block is a scale, then one code of
// 2, 4 or 8 bits per value. A format brings two loops over all blocks; what is checked and reported
// is the same for all of them.
//
// Codes of less than a byte lie in planes, so that the loops need no shuffles: in a block of n
// values, with p = 8 / bits codes per byte and h = ceil(n / p) bytes, byte j holds the codes of the
// values j, j + h, ... from its low bits upwards. What exceeds n is zero; decoding checks that.
#include "atoll/codec/codec.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {

/// Magnitudes from here on (1.5 * 2^127) are refused: the nearest power of two is infinite.
constexpr uint32_t kTooLargeBits = 0x7f40'0000;

struct BlockFormat {
  std::string_view name;
  uint8_t kind;
  size_t block_size;   // A multiple of 8.
  size_t scale_bytes;  // At the start of a block.
  size_t code_bits;
  Codec::ErrorBound error_bound;
  /// Both stop at the first block they cannot do and return its index, or the number of blocks.
  /// encode refuses blocks with a magnitude of kTooLargeBits or more; decode refuses scales that
  /// encode does not make and that give values that are not finite, or depend on how the thread
  /// treats subnormal numbers.
  size_t (*encode)(const float* values, size_t count, std::byte* body);
  size_t (*decode)(const std::byte* body, size_t count, float* values);
};

class BlockCodec final : public Codec {
 public:
  explicit BlockCodec(const BlockFormat& format) : format_(format) {}
  std::string_view name() const override { return format_.name; }
  double bits_per_value() const override;
  ErrorBound error_bound() const override { return format_.error_bound; }
  float largest() const override { return float_of(kTooLargeBits - 1); }

 protected:
  uint8_t kind() const override { return format_.kind; }
  size_t max_body_bytes(size_t count) const override;
  Encoded encode_body(std::span<const float> values, uint32_t sequence,
                      std::span<std::byte> body) const override;
  size_t decode_body(std::span<const std::byte> body, uint32_t sequence,
                     std::span<float> values) const override;

 private:
  /// Whether a body holds zeros where it has room for more than `count` codes.
  bool is_padded(std::span<const std::byte> body, size_t count) const;

  const BlockFormat& format_;  // Static.
};

/// Calls work(first value, number of values, first byte) for each block until it returns false.
/// Returns the number of blocks done. The size of a whole block is a constant in `work`, so that
/// its loops need no tails.
template <size_t kBlock, size_t kBlockBytes, typename Work>
ATOLL_INLINE size_t for_each_block(size_t count, const Work& work) {
  const size_t num_whole = count / kBlock;
  for (size_t block = 0; block < num_whole; ++block) {
    if (!work(block * kBlock, kBlock, block * kBlockBytes)) return block;
  }
  const size_t rest = count % kBlock;
  if (rest == 0) return num_whole;
  return num_whole + (work(num_whole * kBlock, rest, num_whole * kBlockBytes) ? 1 : 0);
}

ATOLL_INLINE uint32_t largest_magnitude(const float* values, size_t count) {
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = magnitude_bits(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

/// Writes code(value) of four bits for each value, in planes.
template <typename Code>
ATOLL_INLINE void pack_nibbles(const float* values, size_t count, std::byte* out,
                               const Code& code) {
  const size_t half = (count + 1) / 2;
  for (size_t j = 0; j < count / 2; ++j) {
    out[j] = static_cast<std::byte>(code(values[j]) | code(values[j + half]) << 4);
  }
  if (count % 2 != 0) out[half - 1] = static_cast<std::byte>(code(values[half - 1]));
}

/// The inverse: values[i] = value(code i).
template <typename Value>
ATOLL_INLINE void unpack_nibbles(const std::byte* codes, size_t count, float* values,
                                 const Value& value) {
  const size_t half = (count + 1) / 2;
  for (size_t j = 0; j < half; ++j) values[j] = value(static_cast<uint32_t>(codes[j]) & 15);
  for (size_t j = 0; j < count / 2; ++j) {
    values[j + half] = value(static_cast<uint32_t>(codes[j]) >> 4);
  }
}

}  // namespace atl::codec
