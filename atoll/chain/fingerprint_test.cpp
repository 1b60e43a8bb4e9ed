// Rows that differ as honest machines' do are taken for the same; others are told apart.
#include "atoll/chain/fingerprint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "atoll/base/random.h"

namespace atl::chain {
namespace {

constexpr int64_t kWidth = 576;
constexpr int64_t kTokens = 16;

/// As residual streams are: a few values are hundreds of times as large as the others, and the
/// first token's row a hundred times as large as all.
std::vector<float> rows_of(uint64_t seed) {
  std::vector<float> rows;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t c = 0; c < kWidth; ++c) {
      const double large = c % 200 == 7 ? 100 : 1;
      const double first = t == 0 && c % 200 == 7 ? 100 : 1;
      rows.push_back(static_cast<float>(
          large * first * random_normal(seed, 1, static_cast<uint64_t>(t * kWidth + c))));
    }
  }
  return rows;
}

double norm(std::span<const float> row) {
  double square = 0;
  for (const float value : row) square += value * static_cast<double>(value);
  return std::sqrt(square);
}

/// Each row with an error of that size, relative to the row.
std::vector<float> with_noise(std::vector<float> rows, uint64_t seed, double size) {
  for (size_t begin = 0; begin < rows.size(); begin += kWidth) {
    const std::span<float> row = std::span(rows).subspan(begin, kWidth);
    const double each = size * norm(row) / std::sqrt(kWidth);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] += static_cast<float>(each * random_normal(seed, 2, begin + i));
    }
  }
  return rows;
}

int num_told_apart(int count, const std::function<std::vector<float>(uint64_t)>& sent) {
  Witness witness;
  int num_apart = 0;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const auto seen = witness.see(sent(seed), kWidth);
    num_apart += difference(seen, rows_of(seed)) > kMostDifference ? 1 : 0;
  }
  return num_apart;
}

TEST(Fingerprint, EightBytesAToken) { EXPECT_EQ(sizeof(Fingerprint), 8U); }

TEST(Fingerprint, TheSameRowsDoNotDiffer) {
  Witness witness;
  EXPECT_EQ(difference(witness.see(rows_of(1), kWidth), rows_of(1)), 0);
  EXPECT_EQ(difference({}, {}), 0);
}

TEST(Fingerprint, RoundingInAnotherOrderIsNoDifference) {
  EXPECT_EQ(num_told_apart(300, [](uint64_t s) { return with_noise(rows_of(s), s, 1e-4); }), 0);
  EXPECT_EQ(num_told_apart(300, [](uint64_t s) { return with_noise(rows_of(s), s, 1e-3); }), 0);
}

TEST(Fingerprint, OnePercentOfNoiseIsOne) {
  EXPECT_GE(num_told_apart(1000, [](uint64_t s) { return with_noise(rows_of(s), s, 0.01); }), 998);
}

TEST(Fingerprint, OtherRowsAreOthers) {
  EXPECT_EQ(num_told_apart(300, [](uint64_t s) { return rows_of(s + 1000); }), 300);
}

TEST(Fingerprint, AnErrorInOneTokenCounts) {
  const auto sent = [](uint64_t s) {
    std::vector<float> rows = rows_of(s);
    const std::vector<float> noisy = with_noise(rows, s, 0.3);
    std::copy(noisy.begin() + 5 * kWidth, noisy.begin() + 6 * kWidth, rows.begin() + 5 * kWidth);
    return rows;
  };
  // A direction in which it is small hides it: 287 are expected, with a deviation of 3.5.
  EXPECT_GE(num_told_apart(300, sent), 267);
}

TEST(Fingerprint, IsTheRelativeError) {
  constexpr uint64_t kTimes = 800;
  Witness witness;
  double sum = 0;
  for (uint64_t seed = 0; seed < kTimes; ++seed) {
    const auto seen = witness.see(with_noise(rows_of(seed), seed, 0.02), kWidth);
    // Squares are right in the mean; their roots are a little small, the more so the fewer rows.
    sum += std::pow(difference(seen, rows_of(seed)), 2);
  }
  EXPECT_NEAR(std::sqrt(sum / kTimes), 0.02, 0.001);
}

TEST(Fingerprint, WhatIsNotFiniteDiffersWithoutEnd) {
  const std::vector<float> row(kWidth, 1);
  EXPECT_EQ(difference(std::vector<Fingerprint>{{.seed = 1, .value = NAN}}, row),
            std::numeric_limits<double>::infinity());
  const std::vector<float> zeros(kWidth, 0);
  EXPECT_EQ(difference(std::vector<Fingerprint>{{.seed = 1, .value = 1}}, zeros),
            std::numeric_limits<double>::infinity());
}

TEST(Fingerprint, SeedsDifferForEachRowAndWitness) {
  Witness one;
  Witness other;
  std::set<uint32_t> seeds;
  for (Witness* witness : {&one, &other}) {
    for (const Fingerprint& each : witness->see(rows_of(1), kWidth)) seeds.insert(each.seed);
  }
  EXPECT_EQ(seeds.size(), 2U * kTokens);
}

}  // namespace
}  // namespace atl::chain
