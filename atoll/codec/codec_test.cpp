#include "atoll/codec/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::codec {
namespace {

using testing::HasSubstr;

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::string message_of(const auto& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// The nearest bfloat16 by trying both neighbours: an oracle that shares no arithmetic with ours.
float nearest_bf16(float x) {
  const uint32_t low = std::bit_cast<uint32_t>(x) & 0xffff'0000;
  const double below = from_bits(low);
  const double above = from_bits(low + 0x1'0000);
  const double to_below = std::abs(static_cast<double>(x) - below);
  const double to_above = std::abs(above - static_cast<double>(x));
  const bool up = to_above < to_below || (to_above == to_below && ((low >> 16) & 1) != 0);
  return from_bits(up ? low + 0x1'0000 : low);
}

TEST(CodecTest, GoldenBytes) {
  const std::vector<float> values = {1.0F, -2.5F, 3.14159274F};
  Bytes fp32 = bytes_of({0xff});  // Encodings are appended.
  make_codec("fp32")->encode(values, fp32, 0x01020304);
  EXPECT_EQ(fp32, bytes_of({0xff, 0xde, 0xc0, 1,    1,    3,    0,    0,    0,   4,
                            3,    2,    1,    0xc0, 0x29, 0x86, 0xd5, 0,    0,   0x80,
                            0x3f, 0,    0,    0x20, 0xc0, 0xdb, 0x0f, 0x49, 0x40}));
  Bytes bf16;
  make_codec("bf16")->encode(values, bf16);
  EXPECT_EQ(bf16, bytes_of({0xde, 0xc0, 2,    1,    3,    0,    0,    0,    0,    0,    0,
                            0,    0xec, 0xe7, 0x99, 0x38, 0x80, 0x3f, 0x20, 0xc0, 0x49, 0x40}));
}

TEST(CodecTest, Bf16RoundsToNearestTiesToEven) {
  const auto codec = make_codec("bf16");
  const auto rounded = [&](uint32_t bits) {
    Bytes bytes;
    const float value = from_bits(bits);
    codec->encode({&value, 1}, bytes);
    float decoded = 0;
    codec->decode(bytes, {&decoded, 1});
    return std::bit_cast<uint32_t>(decoded);
  };
  EXPECT_EQ(rounded(0x3f80'8000), 0x3f80'0000U);  // A tie, even below.
  EXPECT_EQ(rounded(0x3f81'8000), 0x3f82'0000U);  // A tie, even above.
  EXPECT_EQ(rounded(0x3f80'8001), 0x3f81'0000U);
  EXPECT_EQ(rounded(0x3f80'7fff), 0x3f80'0000U);
  EXPECT_EQ(rounded(0x8000'0000), 0x8000'0000U);  // Minus zero.
  EXPECT_EQ(rounded(0x0000'8001), 0x0001'0000U);  // Subnormal.
}

TEST(CodecTest, RoundTripStaysWithinTheStatedErrorForAllSizes) {
  for (const std::string& name : codec_names()) {
    const auto codec = make_codec(name);
    EXPECT_EQ(codec->name(), name);
    const auto bound = codec->error_bound();
    for (const size_t count : {0, 1, 2, 3, 7, 8, 63, 1000, 100'003}) {
      std::vector<float> values(count);
      for (size_t i = 0; i < count; ++i) {  // All exponents, subnormals too.
        const uint64_t bits = random_bits(7, count, i);
        values[i] = from_bits(static_cast<uint32_t>(bits));
        if (std::abs(values[i]) > 3e38F || std::isnan(values[i])) values[i] = 0.1F;
      }
      Bytes bytes;
      codec->encode(values, bytes);
      EXPECT_EQ(bytes.size(), codec->max_encoded_bytes(count));
      std::vector<float> decoded(count, 42.0F);
      codec->decode(bytes, decoded);
      for (size_t i = 0; i < count; ++i) {
        const double x = values[i];
        ASSERT_LE(std::abs(decoded[i] - x), bound.relative * std::abs(x) + bound.absolute) << i;
        const float expected = name == "bf16" ? nearest_bf16(values[i]) : values[i];
        ASSERT_EQ(decoded[i], expected) << name << ' ' << i;
      }
      Bytes again;
      codec->encode(decoded, again);
      EXPECT_EQ(again, bytes) << "decoded values must encode to the same bytes";
    }
  }
}

TEST(CodecTest, RefusesValuesThatAreNotFinite) {
  const float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::string& name : codec_names()) {
    const auto codec = make_codec(name);
    for (const float bad : {kInfinity, -kInfinity, from_bits(0x7fc0'0000), from_bits(0x7f80'0001),
                            from_bits(0xffff'ffff)}) {
      std::vector<float> values(100, 1.0F);
      values[37] = bad;
      values[80] = bad;
      Bytes out = bytes_of({1, 2});
      EXPECT_THAT(message_of([&] { codec->encode(values, out); }), HasSubstr("value 37 is"));
      EXPECT_EQ(out.size(), 2U);
    }
  }
  const float large = std::numeric_limits<float>::max();  // Rounds to infinity in bfloat16.
  Bytes out;
  EXPECT_THROW(make_codec("bf16")->encode({&large, 1}, out), InputError);
  EXPECT_NO_THROW(make_codec("fp32")->encode({&large, 1}, out));
}

TEST(CodecTest, DecodeRefusesEverythingButItsOwnEncoding) {
  for (const std::string& name : codec_names()) {
    const auto codec = make_codec(name);
    const std::vector<float> values = {1, 2, 3};
    std::vector<float> decoded(3);
    Bytes good;
    codec->encode(values, good);
    const auto message = [&](const Bytes& bytes, size_t count) {
      decoded.resize(count);
      return message_of([&] { codec->decode(bytes, decoded); });
    };
    for (size_t size = 0; size < good.size(); ++size) {
      EXPECT_NE(message(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size)), 3),
                "nothing was thrown");
    }
    EXPECT_THAT(message(good, 2), HasSubstr("3 values encoded, 2 expected"));
    Bytes bad = good;
    bad.push_back(std::byte{0});
    EXPECT_THAT(message(bad, 3), HasSubstr("expected"));
    bad = good;
    bad[0] = std::byte{0};
    EXPECT_THAT(message(bad, 3), HasSubstr("magic"));
    bad = good;
    bad[2] = std::byte{99};
    EXPECT_THAT(message(bad, 3), HasSubstr("codec kind 99"));
    bad = good;
    bad[12] ^= std::byte{1};
    EXPECT_THAT(message(bad, 3), HasSubstr("other settings"));
    bad.clear();
    codec->encode(values, bad, /*sequence=*/5);
    EXPECT_THAT(message(bad, 3), HasSubstr("sequence 5, 0 expected"));
    bad = good;
    bad[bad.size() - 1] = std::byte{0x7f};
    bad[bad.size() - 2] = std::byte{0xc0};
    EXPECT_THAT(message(bad, 3), HasSubstr("value 2 is nan"));
  }
}

TEST(CodecTest, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(message_of([] { make_codec("fp31"); }),
              HasSubstr("unknown codec 'fp31': known are bf16, fp32"));
}

}  // namespace
}  // namespace atl::codec
