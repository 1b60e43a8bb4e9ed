// The tiled transform against the definition of the DCT-II in FP64.
#include "atoll/method/dct.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "atoll/base/hash.h"
#include "atoll/base/random.h"

namespace atl::method {
namespace {

double basis(int64_t size, int64_t k, int64_t n) {
  return std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(size)) *
         std::cos(std::numbers::pi * (static_cast<double>(n) + 0.5) * static_cast<double>(k) /
                  static_cast<double>(size));
}

std::vector<float> random_values(size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(random_normal(3, 1, i));
  return out;
}

TEST(TiledDctTest, EqualsTheDefinitionTileByTile) {
  // 96 = 2 x 48 rows, 64 = 1 x 64 columns; a vector of 130 = 2 x 65 -> pieces of 26 (5 x 26).
  const std::vector<weights::ParameterSpec> specs = {{"w", {96, 64}, 0, 96 * 64, 0},
                                                     {"n", {130}, 96 * 64, 130, 0}};
  const TiledDct dct(specs);
  const auto x = random_values(96 * 64 + 130);
  std::vector<float> c(x.size());
  dct.forward(x, c);
  for (int64_t tile = 0; tile < 2; ++tile) {
    for (const auto& [k, l] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 0}, {5, 63}, {47, 20}}) {
      double expected = 0;
      for (int64_t i = 0; i < 48; ++i) {
        for (int64_t j = 0; j < 64; ++j) {
          expected +=
              basis(48, k, i) * basis(64, l, j) * x[static_cast<size_t>((tile * 48 + i) * 64 + j)];
        }
      }
      EXPECT_NEAR(c[static_cast<size_t>(tile * 48 * 64 + k * 64 + l)], expected, 1e-4);
    }
  }
  for (int64_t piece = 0; piece < 5; ++piece) {
    double expected = 0;
    for (int64_t i = 0; i < 26; ++i) {
      expected += basis(26, 3, i) * x[static_cast<size_t>(96 * 64 + piece * 26 + i)];
    }
    EXPECT_NEAR(c[static_cast<size_t>(96 * 64 + piece * 26 + 3)], expected, 1e-4);
  }
}

TEST(DctBasisTest, HoldsTheNearestFloats) {
  for (int64_t size = 1; size <= TiledDct::kSide; ++size) {
    const auto rows = dct_basis(size);
    for (int64_t k = 0; k < size; ++k) {
      const long double scale = std::sqrt((k == 0 ? 1.0L : 2.0L) / static_cast<long double>(size));
      for (int64_t n = 0; n < size; ++n) {
        // The angle's whole turns are taken off before anything is rounded.
        const int64_t turn = (2 * n + 1) * k % (4 * size);
        const long double exact =
            scale * std::cos(std::numbers::pi_v<long double> * static_cast<long double>(turn) /
                             static_cast<long double>(2 * size));
        const float got = rows[static_cast<size_t>(k * size + n)];
        const float ulp = std::nextafter(std::abs(got), 2.0F) - std::abs(got);
        ASSERT_LE(std::abs(static_cast<long double>(got) - exact),
                  0.5L * (1 + 1e-6L) * ulp + 1e-18L)
            << size << ' ' << k << ' ' << n;
      }
    }
  }
}

/// Of the nearest floats as 60 decimal digits give them.
TEST(DctBasisTest, HasTheSameBitsEverywhere) {
  const auto rows = dct_basis(64);
  EXPECT_EQ(hex(sha256(std::as_bytes(std::span(rows)))),
            "23ad299315db91c9add281483667443d43edf415e0aed3ff813870eb737b8a4b");
}

TEST(TiledDctTest, TheInverseGivesTheValuesBack) {
  // Several tiles in both directions, a prime dimension, one row, a scalar.
  const std::vector<weights::ParameterSpec> specs = {{"a", {128, 192}, 0, 128 * 192, 0},
                                                     {"b", {97, 10}, 24576, 970, 0},
                                                     {"c", {1, 64}, 25546, 64, 1},
                                                     {"d", {1}, 25610, 1, -1}};
  const TiledDct dct(specs);
  const auto x = random_values(25611);
  std::vector<float> c(x.size());
  std::vector<float> back(x.size());
  dct.forward(x, c);
  dct.inverse(c, back);
  double norm_x = 0;
  double norm_c = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(back[i], x[i], 1e-5) << i;
    norm_x += x[i] * x[i];
    norm_c += c[i] * c[i];
  }
  EXPECT_NEAR(norm_c, norm_x, 1e-5 * norm_x);  // Parseval.
}

}  // namespace
}  // namespace atl::method
