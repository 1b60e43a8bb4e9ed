#include "atoll/kv/vectorwise_coder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/codec/float_bits.h"

namespace atl::kv {
namespace {

constexpr size_t kChannels = 24;

uint16_t bf16(double value) {
  return static_cast<uint16_t>(codec::round_to_bf16(codec::bits_of(static_cast<float>(value))));
}
double value_of(uint16_t bits) { return double{codec::float_of(uint32_t{bits} << 16)}; }

/// Channels of other sizes, whose tokens are alike as far as `correlation` says.
std::vector<uint16_t> drawn(size_t num_planes, size_t num_tokens, double correlation,
                            uint64_t seed) {
  std::vector<uint16_t> kv_PCT;
  for (size_t channel = 0; channel < num_planes * kChannels; ++channel) {
    const double size = std::pow(2.0, static_cast<double>(channel % 5));
    double value = random_normal(seed, channel, 0);
    for (size_t t = 0; t < num_tokens; ++t) {
      value = correlation * value +
              std::sqrt(1 - correlation * correlation) * random_normal(seed, channel, t + 1);
      kv_PCT.push_back(bf16(size * (value + (channel % 3 == 0 ? 2 : 0))));
    }
  }
  return kv_PCT;
}

std::vector<uint16_t> there_and_back(std::span<const uint16_t> kv_PCT,
                                     std::span<const float> steps_PC,
                                     std::span<const VectorwisePlane> planes_P, size_t& num_bytes) {
  Bytes out;
  encode_vectorwise(kv_PCT, kChannels, steps_PC, planes_P, out);
  num_bytes = out.size();
  std::vector<uint16_t> back(kv_PCT.size());
  ByteReader in(out);
  decode_vectorwise(in, kChannels, steps_PC, planes_P, back);
  in.expect_end();
  return back;
}

/// Half a step of a scale that is at most 2^(1/8) of the token's largest, and half a bfloat16.
void expect_near(std::span<const uint16_t> kv_PCT, std::span<const uint16_t> back_PCT,
                 std::span<const float> steps_PC) {
  const size_t num_tokens = kv_PCT.size() / steps_PC.size();
  const size_t size = kChannels * num_tokens;
  for (size_t begin = 0; begin < kv_PCT.size(); begin += size) {
    for (size_t t = 0; t < num_tokens; ++t) {
      double most = 0;
      for (size_t c = 0; c < kChannels; ++c) {
        most = std::max(most, std::abs(value_of(kv_PCT[begin + c * num_tokens + t])));
      }
      for (size_t c = 0; c < kChannels; ++c) {
        const size_t i = begin + c * num_tokens + t;
        const double bound = 0.5 * most * 1.0906 / steps_PC[i / num_tokens] + 0x1p-8 * most;
        ASSERT_LE(std::abs(value_of(back_PCT[i]) - value_of(kv_PCT[i])), bound) << t << ' ' << c;
      }
    }
  }
}

/// The same for all channels of a plane.
std::vector<float> steps_of(const std::vector<float>& steps_P) {
  std::vector<float> steps_PC;
  for (const float steps : steps_P) steps_PC.insert(steps_PC.end(), kChannels, steps);
  return steps_PC;
}

VectorwisePlane fitted(VectorwiseMode mode) {
  const std::vector<ValueTable> tables(kChannels, ValueTable(-8, std::vector<uint32_t>(17, 5)));
  return {.mode = mode, .usual_scale = 0, .tables_C = tables, .anchors_C = tables};
}

TEST(VectorwiseCoder, ErrsByHalfAStepAtMostWhateverTheTokens) {
  std::vector<float> steps = steps_of({7, 15.5F, 200});
  for (size_t i = 0; i < steps.size(); i += 5) steps[i] *= 0.1F;  // Errors are cheap there.
  for (const size_t num_tokens : {1, 2, 9, 10, 11, 19, 20, 21, 256}) {
    for (const double correlation : {0.0, 0.99}) {
      const auto kv_PCT = drawn(3, num_tokens, correlation, num_tokens);
      size_t size = 0;
      expect_near(kv_PCT, there_and_back(kv_PCT, steps, {}, size), steps);
      for (const auto mode : {VectorwiseMode::kDirect, VectorwiseMode::kAnchored}) {
        const std::vector<VectorwisePlane> planes(3, fitted(mode));
        expect_near(kv_PCT, there_and_back(kv_PCT, steps, planes, size), steps);
      }
    }
  }
}

TEST(VectorwiseCoder, TokensHaveTheUsualScaleButForThoseFarBeyondIt) {
  const std::vector<float> steps = steps_of({15});
  constexpr size_t kTokens = 60;
  auto kv_PCT = drawn(1, kTokens, 0.5, 4);
  const auto scaled = [&](size_t token, double by) {
    for (size_t c = 0; c < kChannels; ++c) {
      uint16_t& value = kv_PCT[c * kTokens + token];
      value = bf16(by * value_of(value));
    }
  };
  scaled(7, 0.01);
  scaled(13, 0.2);
  scaled(21, 1000);
  for (const auto mode : {VectorwiseMode::kDirect, VectorwiseMode::kAnchored}) {
    std::vector<VectorwisePlane> planes(1, fitted(mode));
    planes[0].usual_scale = scale_number(60);
    size_t size = 0;
    const auto back_PCT = there_and_back(kv_PCT, steps, planes, size);
    for (size_t t = 0; t < kTokens; ++t) {
      double most = 0;
      for (size_t c = 0; c < kChannels; ++c) {
        most = std::max(most, std::abs(value_of(kv_PCT[c * kTokens + t])));
      }
      const double scale = t == 21 ? 1.0906 * most : scale_of(planes[0].usual_scale);
      for (size_t c = 0; c < kChannels; ++c) {
        const size_t i = c * kTokens + t;
        ASSERT_LE(std::abs(value_of(back_PCT[i]) - value_of(kv_PCT[i])),
                  0.5 * scale / 15 + 0x1p-8 * most)
            << t << ' ' << c;
      }
    }
  }
  EXPECT_EQ(scale_of(scale_number(60)), 64);
  EXPECT_EQ(scale_number(scale_of(801)), 801);
}

TEST(VectorwiseCoder, TakesTheModeOfFewerBits) {
  const std::vector<float> steps = steps_of({15});
  for (const double correlation : {0.0, 0.999}) {
    const auto kv_PCT = drawn(1, 400, correlation, 3);
    Bytes out;
    encode_vectorwise(kv_PCT, kChannels, steps, {}, out);
    EXPECT_EQ(std::to_integer<int>(out[0]) & 1, correlation > 0.5 ? 1 : 0);
  }
}

TEST(VectorwiseCoder, TokensOfZerosAndOfTheSmallestStayAsTheyAre) {
  const std::vector<float> steps = steps_of({15});
  auto kv_PCT = drawn(1, 30, 0.5, 1);
  for (size_t c = 0; c < kChannels; ++c) {
    for (const size_t t : {0, 7, 10, 29}) kv_PCT[c * 30 + t] = 0;
    kv_PCT[c * 30 + 3] = 1;  // The least that there is.
  }
  size_t size = 0;
  for (const auto mode : {VectorwiseMode::kDirect, VectorwiseMode::kAnchored}) {
    const std::vector<VectorwisePlane> planes(1, fitted(mode));
    const auto back = there_and_back(kv_PCT, steps, planes, size);
    for (size_t c = 0; c < kChannels; ++c) {
      for (const size_t t : {0, 3, 7, 10, 29}) EXPECT_EQ(value_of(back[c * 30 + t]), 0);
    }
  }
}

TEST(VectorwiseCoder, WhatIsNotFiniteIsRefusedAndWhatDiffersTooMuchIsDirect) {
  const std::vector<float> steps = steps_of({15});
  auto kv_PCT = drawn(1, 20, 0.5, 1);
  for (size_t c = 0; c < kChannels; ++c) kv_PCT[c * 20 + 5] = bf16(1e-9);  // Beside its anchor.
  const std::vector<VectorwisePlane> planes(1, fitted(VectorwiseMode::kAnchored));
  size_t size = 0;
  expect_near(kv_PCT, there_and_back(kv_PCT, steps, planes, size), steps);
  for (const uint16_t wrong : {0x7F80, 0xFF80, 0x7FC0, 0x7F00}) {
    kv_PCT[33] = wrong;
    Bytes out;
    EXPECT_THROW(encode_vectorwise(kv_PCT, kChannels, steps, planes, out), InputError);
  }
}

TEST(VectorwiseCoder, WhatIsNoEncodingIsRefused) {
  const std::vector<float> steps = steps_of({7, 15});
  const auto kv_PCT = drawn(2, 13, 0.5, 1);
  Bytes out;
  encode_vectorwise(kv_PCT, kChannels, steps, {}, out);
  std::vector<uint16_t> back(kv_PCT.size());
  for (size_t cut = 0; cut < out.size(); ++cut) {
    ByteReader in(std::span<const std::byte>(out).first(cut));
    EXPECT_THROW(decode_vectorwise(in, kChannels, steps, {}, back), InputError);
  }
  const std::vector<VectorwisePlane> planes(2, fitted(VectorwiseMode::kAnchored));
  Bytes with_tables;
  encode_vectorwise(kv_PCT, kChannels, steps, planes, with_tables);
  const std::vector<VectorwisePlane> others(2, fitted(VectorwiseMode::kDirect));
  for (const auto& wrong : {std::vector<VectorwisePlane>(), others}) {
    ByteReader in(with_tables);
    EXPECT_THROW(decode_vectorwise(in, kChannels, steps, wrong, back), InputError);
  }
  out[0] = std::byte{9};
  ByteReader in(out);
  EXPECT_THROW(decode_vectorwise(in, kChannels, steps, {}, back), InputError);
}

}  // namespace
}  // namespace atl::kv
