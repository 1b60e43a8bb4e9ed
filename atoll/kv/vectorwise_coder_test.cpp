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
                                     std::span<const float> steps_P,
                                     std::span<const VectorwisePlane> planes_P, size_t& num_bytes) {
  Bytes out;
  encode_vectorwise(kv_PCT, kChannels, steps_P, planes_P, out);
  num_bytes = out.size();
  std::vector<uint16_t> back(kv_PCT.size());
  ByteReader in(out);
  decode_vectorwise(in, kChannels, steps_P, planes_P, back);
  in.expect_end();
  return back;
}

/// Half a step of a scale that is at most 2^(1/8) of the token's largest, and half a bfloat16.
void expect_near(std::span<const uint16_t> kv_PCT, std::span<const uint16_t> back_PCT,
                 std::span<const float> steps_P) {
  const size_t size = kv_PCT.size() / steps_P.size();
  const size_t num_tokens = size / kChannels;
  for (size_t p = 0; p < steps_P.size(); ++p) {
    for (size_t t = 0; t < num_tokens; ++t) {
      double most = 0;
      for (size_t c = 0; c < kChannels; ++c) {
        most = std::max(most, std::abs(value_of(kv_PCT[p * size + c * num_tokens + t])));
      }
      for (size_t c = 0; c < kChannels; ++c) {
        const size_t i = p * size + c * num_tokens + t;
        // An anchor has steps of its own.
        const double steps = std::min(steps_P[p], 127.0F);
        const double bound = 0.5 * most * 1.0906 / steps + 0x1p-8 * most;
        ASSERT_LE(std::abs(value_of(back_PCT[i]) - value_of(kv_PCT[i])), bound) << t << ' ' << c;
      }
    }
  }
}

VectorwisePlane fitted(VectorwiseMode mode) {
  const std::vector<ValueTable> tables(kChannels, ValueTable(-8, std::vector<uint32_t>(17, 5)));
  return {.mode = mode, .tables_C = tables, .anchors_C = tables};
}

TEST(VectorwiseCoder, ErrsByHalfAStepAtMostWhateverTheTokens) {
  const std::vector<float> steps = {7, 15.5F, 200};
  for (const size_t num_tokens : {1, 2, 9, 10, 11, 19, 20, 21, 256}) {
    for (const double correlation : {0.0, 0.99}) {
      const auto kv_PCT = drawn(steps.size(), num_tokens, correlation, num_tokens);
      size_t size = 0;
      expect_near(kv_PCT, there_and_back(kv_PCT, steps, {}, size), steps);
      for (const auto mode : {VectorwiseMode::kDirect, VectorwiseMode::kAnchored}) {
        const std::vector<VectorwisePlane> planes(steps.size(), fitted(mode));
        expect_near(kv_PCT, there_and_back(kv_PCT, steps, planes, size), steps);
      }
    }
  }
}

TEST(VectorwiseCoder, TakesTheModeOfFewerBits) {
  const std::vector<float> steps = {15};
  for (const double correlation : {0.0, 0.999}) {
    const auto kv_PCT = drawn(1, 400, correlation, 3);
    Bytes out;
    encode_vectorwise(kv_PCT, kChannels, steps, {}, out);
    EXPECT_EQ(std::to_integer<int>(out[0]) & 1, correlation > 0.5 ? 1 : 0);
  }
}

TEST(VectorwiseCoder, TokensOfZerosAndOfTheSmallestStayAsTheyAre) {
  const std::vector<float> steps = {15};
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
  const std::vector<float> steps = {15};
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
  const std::vector<float> steps = {7, 15};
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
