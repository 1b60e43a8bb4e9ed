// The codecs' bytes and decoded values beside those that tests/oracle/codec_golden.py works out
// from the formats' definitions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>

#include "atoll/base/hash.h"
#include "atoll/codec/codec.h"

namespace atl::codec {
namespace {

struct Golden {
  const char* codec;
  uint32_t sequence;
  size_t count;
  uint64_t seed;
  const char* body;     // Hexadecimal.
  const char* decoded;  // SHA-256 of the floats, -0 replaced by 0.
};
constexpr Golden kGolden[] = {
#include "atoll/codec/golden.inc"
};

/// As values_of() of the oracle.
std::vector<float> values_of(size_t count, uint64_t seed) {
  uint64_t state = seed;
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const auto bits = static_cast<uint32_t>(state >> 32);
    const uint32_t mantissa = bits & (seed % 2 != 0 ? 0x7f'ffff : 0x60'0000);
    const uint32_t exponent = 110 + (bits >> 23 & 15);
    values.push_back(std::bit_cast<float>((bits & 0x8000'0000) | exponent << 23 | mantissa));
  }
  return values;
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<int>(b));
  return text;
}

TEST(CodecGoldenTest, BytesAndValuesAreThoseOfTheDefinitions) {
  for (const Golden& golden : kGolden) {
    SCOPED_TRACE(fmt::format("{}, {} values, seed {}", golden.codec, golden.count, golden.seed));
    const auto codec = make_codec(golden.codec);
    Bytes bytes;
    codec->encode(values_of(golden.count, golden.seed), bytes, golden.sequence);
    EXPECT_EQ(hex_of(std::span(bytes).subspan(Codec::kHeaderBytes)), golden.body);
    std::vector<float> decoded(golden.count);
    codec->decode(bytes, decoded, golden.sequence);
    for (float& value : decoded) value += 0.0F;
    EXPECT_EQ(hex(sha256(std::as_bytes(std::span(decoded)))), golden.decoded);
  }
}

}  // namespace
}  // namespace atl::codec
