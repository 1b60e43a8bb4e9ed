#include "atoll/kv/component_coder.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::kv {
namespace {

constexpr size_t kComponents = 40;

/// From far above a step down to nearly nothing.
std::vector<float> drawn(size_t num_tokens, uint64_t seed) {
  std::vector<float> z_TR;
  for (size_t t = 0; t < num_tokens; ++t) {
    for (size_t r = 0; r < kComponents; ++r) {
      const double deviation = 30 * std::pow(0.8, static_cast<double>(r));
      z_TR.push_back(static_cast<float>(deviation * random_normal(seed, r, t)));
    }
  }
  return z_TR;
}

std::vector<ValueTable> fitted(std::span<const float> z_TR, float step) {
  std::vector<ValueTable> tables;
  for (size_t r = 0; r < kComponents; ++r) {
    std::vector<uint32_t> counts(401);
    for (size_t i = r; i < z_TR.size(); i += kComponents) {
      const int number = component_number(z_TR[i], step);
      if (std::abs(number) <= 200) ++counts[static_cast<size_t>(number + 200)];
    }
    tables.emplace_back(static_cast<int16_t>(-200), counts);
  }
  return tables;
}

TEST(ComponentCoder, ErrsByTheStepAndCostsWhatTheTheorySays) {
  const auto tables = fitted(drawn(4000, 1), 1);
  const ComponentStep step{.step = 1, .means = {1, 2}};
  for (const size_t num_tokens : {1, 3, 16, 500}) {
    const auto z_TR = drawn(num_tokens, 2);
    Bytes out;
    encode_components(z_TR, step, tables, out);
    std::vector<float> back(z_TR.size());
    ByteReader in(out);
    decode_components(in, step, tables, back);
    in.expect_end();
    std::array<double, kComponents> errors{};
    for (size_t i = 0; i < z_TR.size(); ++i) {
      ASSERT_LE(std::abs(z_TR[i] - back[i]), 0.601F);
      errors[i % kComponents] += std::pow(double{z_TR[i]} - double{back[i]}, 2);
    }
    if (num_tokens < 500) continue;
    // A Gaussian's rate at these errors, and the quarter of a bit that uniform steps lose at most
    // (Gish and Pierce 1968); tables of another text cost little.
    double least_bits = 0;
    for (size_t r = 0; r < kComponents; ++r) {
      const double deviation = 30 * std::pow(0.8, static_cast<double>(r));
      const double error = errors[r] / static_cast<double>(num_tokens);
      least_bits += std::max(0.0, std::log2(deviation / std::sqrt(error)));
    }
    const double bits = 8.0 * static_cast<double>(out.size()) / static_cast<double>(num_tokens);
    EXPECT_LT(bits, least_bits + 0.255 * kComponents + 3);
    EXPECT_GT(bits, least_bits);
  }
}

TEST(ComponentCoder, NumbersThatAreNearlyNeverSeenTravelToo) {
  const auto tables = fitted(drawn(400, 1), 1);
  std::vector<float> z_TR(kComponents * 2);
  z_TR[0] = 31'999;
  z_TR[kComponents - 1] = -5'000;
  Bytes out;
  const ComponentStep step{.step = 1, .means = {0.9F, 1.9F}};
  encode_components(z_TR, step, tables, out);
  std::vector<float> back(z_TR.size());
  ByteReader in(out);
  decode_components(in, step, tables, back);
  EXPECT_EQ(back, z_TR);
}

TEST(ComponentCoder, SmallNumbersAreReadBackAsTheirMeans) {
  const std::vector<ValueTable> tables(1, ValueTable(-4, std::vector<uint32_t>(9, 1)));
  const ComponentStep step{.step = 2, .means = {0.9F, 1.9F}};
  const std::vector<float> z_TR = {0, 1.1F, -1.3F, 2.1F, -4, 6.3F};
  Bytes out;
  encode_components(z_TR, step, tables, out);
  std::vector<float> back(z_TR.size());
  ByteReader in(out);
  decode_components(in, step, tables, back);
  EXPECT_EQ(back, (std::vector<float>{0, 0, -1.8F, 1.8F, -3.8F, 6}));
}

TEST(ComponentCoder, WhatCannotBeNumbersIsRefused) {
  const std::vector<ValueTable> tables(2, ValueTable(-4, std::vector<uint32_t>(9, 1)));
  for (const float wrong : {std::nanf(""), HUGE_VALF, -HUGE_VALF, 3.3e4F}) {
    Bytes out;
    EXPECT_THROW(encode_components(std::vector<float>{1, wrong}, {}, tables, out), InputError);
  }
  ByteReader none(std::span<const std::byte>{});
  std::vector<float> back(2);
  EXPECT_THROW(decode_components(none, {}, tables, back), InputError);
}

}  // namespace
}  // namespace atl::kv
