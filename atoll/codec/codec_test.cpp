#include "atoll/codec/codec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "atoll/base/error.h"
#include "atoll/testing/test_values.h"

namespace atl::codec {
namespace {

using testing::HasSubstr;

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
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

/// Makes this thread treat subnormal numbers as zeros, as the training threads do.
void flush_subnormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#else
  GTEST_SKIP() << "known for x86 only";
#endif
}

/// Each form, the aliases and compositions of every kind.
std::vector<std::string> some_names() {
  std::vector<std::string> names = codec_names();
  for (const char* name : {"topk(0.3)+fp32", "topk(1)+e3m0", "topk(0.0001)+sign3", "topk(0.7)+int8",
                           "chunk_topk(3/100)+stat2", "chunk_topk(5/5)+bf16",
                           "chunk_topk(1/262144)+fp32", "rolling(0.5)+e3m0", "rolling(0.0001)+fp32",
                           "rolling(0.1)+topk(0.2)+sign3", "rolling(0.25)+chunk_topk(8/512)+stat2",
                           "random(0.1)+int8", "random(1)+fp32", "random(0.37)+topk(0.2)+int4"}) {
    names.emplace_back(name);
  }
  return names;
}

/// Whether decoded values are kept by encoding them again. sign3's grid moves when values are
/// nearly equal; what top-k keeps may become zero, and zeros elsewhere take its place in the
/// blocks.
bool is_idempotent(const std::string& name) {
  const std::string form = name.substr(name.rfind('+') + 1);
  const bool has_blocks = form != "fp32" && form != "bf16" && form != "fp16";
  if (name == "cocktail") return false;
  return form != "sign3" && (!has_blocks || name.find("topk") == std::string::npos);
}

void expect_round_trip(const std::string& name, int kind, std::span<const float> values) {
  const size_t count = values.size();
  SCOPED_TRACE(fmt::format("{}, {} values of kind {}", name, count, kind));
  const auto codec = make_codec(name);
  const Bytes bytes = encoded(*codec, values, /*sequence=*/3);
  EXPECT_LE(bytes.size(), codec->max_encoded_bytes(count));
  const std::vector<float> once = decoded(*codec, bytes, count, 3);
  expect_within_bound(*codec, values, once);
  if (count == 1 << 18 && kind < 2) {
    // How many bits positions take depends on the values; those of whole blocks are certain.
    const double slack = codec->is_dense() && name.find('+') == std::string::npos
                             ? 1e-9
                             : 0.02 * codec->bits_per_value() + 0x1p-9;
    const double bits = 8.0 * static_cast<double>(bytes.size() - Codec::kHeaderBytes);
    EXPECT_NEAR(bits / static_cast<double>(count), codec->bits_per_value(), slack);
  }
  if (is_idempotent(name)) {
    EXPECT_EQ(decoded(*codec, encoded(*codec, once, 3), count, 3), once);
  }
}

TEST(CodecTest, RoundTripStaysWithinTheStatedErrorAndSizeForAllSizes) {
  for (const size_t count : {0, 1, 2, 3, 127, 128, 129, 257, 1000, 1 << 18, 3'000'001}) {
    for (int kind = 0; kind < (count > 1000 ? 2 : 7); ++kind) {
      const std::vector<float> values = draw_values(kind, count);
      for (const std::string& name : some_names()) {
        if (name == "fp16" && (kind == 1 || kind == 6)) continue;  // Refuses large values.
        expect_round_trip(name, kind, values);
      }
    }
  }
}

TEST(CodecTest, Fp32AndBf16AreExactAndNearest) {
  const std::vector<float> values = draw_values(1, 100'003);
  for (const std::string name : {"fp32", "bf16"}) {
    const auto codec = make_codec(name);
    Bytes bytes;
    codec->encode(values, bytes);
    std::vector<float> decoded(values.size());
    codec->decode(bytes, decoded);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(decoded[i], name == "bf16" ? nearest_bf16(values[i]) : values[i])
          << name << ' ' << i;
    }
  }
}

/// All halves of the other 2^16 bit patterns: the list that IEEE's rule takes the nearest of.
float half_value(uint32_t magnitude) {
  const auto mantissa = static_cast<float>(magnitude & 0x3ff);
  const int exponent = static_cast<int>(magnitude >> 10);
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
}

TEST(CodecTest, Fp16RoundsToNearestTiesToEvenAndRefusesWhatOverflows) {
  const auto codec = make_codec("fp16");
  const auto round_trip = [&](float value) {
    Bytes bytes;
    codec->encode({&value, 1}, bytes);
    codec->decode(bytes, {&value, 1});
    return value;
  };
  for (uint32_t magnitude = 0; magnitude < 0x7bff; ++magnitude) {
    const float low = half_value(magnitude);
    const float high = half_value(magnitude + 1);
    const float middle = (low + high) / 2;  // Exact.
    ASSERT_EQ(round_trip(low), low);
    ASSERT_EQ(round_trip(-middle), magnitude % 2 == 0 ? -low : -high);
    ASSERT_EQ(round_trip(std::nextafter(middle, 0.0F)), low);
    ASSERT_EQ(round_trip(std::nextafter(middle, 1e9F)), high);
  }
  EXPECT_EQ(round_trip(std::nextafter(65520.0F, 0.0F)), 65504.0F);
  EXPECT_THAT(message_of([&] { round_trip(-65520.0F); }), HasSubstr("value 0 is -65520"));
}

TEST(CodecTest, LowBitCodecsRefuseTheLargestFloats) {
  for (const std::string name : {"e3m0", "int8", "int4"}) {
    const auto codec = make_codec(name);
    std::vector<float> values(1000, 1.0F);
    values[700] = std::nextafter(0x1.8p127F, 0.0F);
    Bytes bytes;
    codec->encode(values, bytes);
    std::vector<float> decoded(1000);
    codec->decode(bytes, decoded);
    EXPECT_NEAR(decoded[700], values[700], codec->error_bound().of_largest * values[700] + 0x1p126);
    values[701] = -0x1.8p127F;
    EXPECT_THAT(message_of([&] { codec->encode(values, bytes); }), HasSubstr("value 701 is -2.55"));
  }
}

TEST(CodecTest, TheLargestThatIsAcceptedIsTheOneStated) {
  for (const std::string& name : some_names()) {
    const auto codec = make_codec(name);
    std::vector<float> values(1000, 1.0F);
    values[700] = codec->largest();
    values[701] = -codec->largest();
    Bytes bytes;
    EXPECT_TRUE(codec->accepts(values)) << name;
    EXPECT_NO_THROW(codec->encode(values, bytes)) << name;
    values[701] = std::nextafter(-codec->largest(), -std::numeric_limits<float>::infinity());
    EXPECT_FALSE(codec->accepts(values)) << name;
    EXPECT_THAT(message_of([&] { codec->encode(values, bytes); }), HasSubstr("value 701 is -"))
        << name;
  }
}

TEST(CodecTest, DecodingDoesNotDependOnFlushingSubnormalNumbers) {
  for (const std::string& name : some_names()) {
    const auto codec = make_codec(name);
    if (name == "fp16") continue;
    const std::vector<float> values = draw_values(1, 5000);
    const auto round_trip = [&] {
      Bytes bytes;
      codec->encode(values, bytes);
      std::vector<float> decoded(values.size());
      codec->decode(bytes, decoded);
      const auto raw = std::as_bytes(std::span(decoded));
      bytes.insert(bytes.end(), raw.begin(), raw.end());
      return bytes;
    };
    const Bytes kept = round_trip();
    std::fenv_t environment;
    std::fegetenv(&environment);
    flush_subnormals();
    const Bytes flushed = round_trip();
    std::fesetenv(&environment);
    EXPECT_EQ(flushed, kept) << name;
  }
}

TEST(CodecTest, RefusesValuesThatAreNotFinite) {
  const float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::string& name : some_names()) {
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
  for (const std::string& name : some_names()) {
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
      EXPECT_NE(message(Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size)), 3), "");
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
  }
}

TEST(CodecTest, DecodingFlippedBitsThrowsOrGivesFiniteValues) {
  for (const std::string& name : some_names()) {
    SCOPED_TRACE(name);
    const auto codec = make_codec(name);
    const Bytes good = encoded(*codec, draw_values(0, 300));
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      Bytes bad = good;
      bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      std::vector<float> values(300);
      const std::string message = message_of([&] { codec->decode(bad, values); });
      if (!message.empty()) continue;
      ASSERT_GE(bit, 8 * Codec::kHeaderBytes);
      for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << bit;
    }
  }
}

TEST(CodecTest, DecodeRefusesBodiesThatAreNeverEncoded) {
  const auto message = [](const std::string& name, Bytes bytes, std::initializer_list<int> end) {
    const auto codec = make_codec(name);
    std::vector<float> values(3);
    codec->encode(std::vector<float>{1, 2, 3}, bytes);
    size_t at = bytes.size() - end.size();
    for (const int value : end) bytes[at++] = static_cast<std::byte>(value);
    return message_of([&] { codec->decode(bytes, values); });
  };
  EXPECT_THAT(message("fp32", {}, {0, 0, 0xc0, 0x7f}), HasSubstr("value 2 is nan"));
  EXPECT_THAT(message("bf16", {}, {0x80, 0xff}), HasSubstr("value 2 is -inf"));
  EXPECT_THAT(message("fp16", {}, {0, 0xfc}), HasSubstr("value 2 is -inf"));
  EXPECT_THAT(message("e3m0", {}, {255, 0, 0}), HasSubstr("the scale of block 0"));
  EXPECT_THAT(message("int8", {}, {0x01, 0x00, 1, 2, 3}), HasSubstr("block 0"));  // Subnormal.
  EXPECT_THAT(message("int8", {}, {0x00, 0x7c, 1, 2, 3}), HasSubstr("block 0"));  // 2^121.
  EXPECT_THAT(message("int4", {}, {0x00, 0x7e, 1, 2}), HasSubstr("block 0"));     // 2^125.
  EXPECT_THAT(message("int4", {}, {0x80, 0x7f, 1, 2}), HasSubstr("block 0"));     // Infinity.
}

TEST(CodecTest, DecodeRefusesCodesBehindTheLastValue) {
  for (const auto& [name, bits] : std::vector<std::pair<std::string, size_t>>{
           {"int4", 4}, {"e3m0", 4}, {"sign3", 4}, {"stat2", 2}}) {
    const auto codec = make_codec(name);
    for (const size_t count : {1, 2, 3, 5, 6, 7, 63, 127, 129, 131}) {
      const Bytes good = encoded(*codec, std::vector<float>(count, 1.0F));
      const size_t block = codec->error_bound().block_size;
      const size_t rest = (count - 1) % block + 1;
      const size_t height = (rest * bits + 7) / 8;
      for (size_t code = rest; code < height * 8 / bits; ++code) {
        Bytes bad = good;
        bad[good.size() - height + code % height] ^=
            static_cast<std::byte>(1 << bits * (code / height));
        EXPECT_THAT(message_of([&] { decoded(*codec, bad, count); }),
                    HasSubstr("codes for more values than there are"))
            << name << ' ' << count;
      }
      EXPECT_NO_THROW(decoded(*codec, good, count));
    }
  }
}

TEST(CodecTest, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(message_of([] { make_codec("fp31"); }),
              HasSubstr("unknown codec 'fp31'; did you mean 'fp32'?; known are bf16, cocktail, "
                        "e3m0, fp16, fp32, int4, "
                        "int8, sign3, sparse_loco, stat2; "));
}

}  // namespace
}  // namespace atl::codec
