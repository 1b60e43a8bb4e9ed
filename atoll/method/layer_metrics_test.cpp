// Cosines and norms from what one replica knows, against all replicas' vectors side by side.
#include "atoll/method/layer_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/random.h"

namespace atl::method {
namespace {

std::vector<weights::ParameterSpec> specs() {
  std::vector<weights::ParameterSpec> out;
  int64_t offset = 0;
  for (const auto& [size, layer] : std::vector<std::pair<int64_t, int64_t>>{
           {6, -1}, {3, 0}, {4, 0}, {5, 1}, {2, -1}, {6, -1}}) {
    out.push_back({"t", {size}, offset, size, layer});
    offset += size;
  }
  return out;
}

std::vector<float> random_values(uint64_t seed, size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(random_normal(seed, 0, i));
  return out;
}

TEST(LayerMetricsTest, SlicesFollowTheRangesOfAFragment) {
  const auto layout = specs();
  const std::vector<Range> whole = {{0, 26}};
  const auto all = layer_slices(layout, whole);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].layer, "embedding");
  EXPECT_EQ(all[1].layer, "0");
  EXPECT_EQ(all[1].end, 13U);
  EXPECT_EQ(all[3].layer, "head");
  EXPECT_EQ(all[3].begin, 18U);
  EXPECT_EQ(all[3].end, 26U);
  const std::vector<Range> parts = {{2, 6}, {11, 15}, {25, 26}};  // Packed: 4, then 2 + 2, then 1.
  const auto cut = layer_slices(layout, parts);
  ASSERT_EQ(cut.size(), 4U);
  EXPECT_EQ(cut[1].begin, 4U);
  EXPECT_EQ(cut[1].end, 6U);
  EXPECT_EQ(cut[2].layer, "1");
  EXPECT_EQ(cut[3].begin, 8U);
  EXPECT_EQ(cut[3].end, 9U);
}

TEST(LayerMetricsTest, EqualTheDefinitionForTwoAndMoreReplicas) {
  const auto layout = specs();
  const std::vector<Range> whole = {{0, 26}};
  const auto slices = layer_slices(layout, whole);
  for (const std::vector<double>& weights :
       {std::vector<double>{0.5, 0.5}, {0.25, 0.75}, {0.2, 0.5, 0.3}}) {
    std::vector<std::vector<float>> values;
    std::vector<float> mean(26);
    for (size_t m = 0; m < weights.size(); ++m) {
      values.push_back(random_values(m + 1, 26));
      for (size_t i = 0; i < 26; ++i) mean[i] += static_cast<float>(weights[m] * values[m][i]);
    }
    for (size_t m = 0; m < weights.size(); ++m) {
      const auto records =
          layer_records(slices, measure_layers(slices, values[m], mean), weights[m]);
      ASSERT_EQ(records.size(), slices.size());
      for (size_t s = 0; s < slices.size(); ++s) {
        double aa = 0;
        double bb = 0;
        double ab = 0;
        for (size_t i = slices[s].begin; i < slices[s].end; ++i) {
          double others = 0;
          for (size_t n = 0; n < weights.size(); ++n) {
            if (n != m) others += weights[n] * values[n][i];
          }
          aa += static_cast<double>(values[m][i]) * values[m][i];
          bb += others * others;
          ab += others * values[m][i];
        }
        EXPECT_NEAR(records[s].norm, std::sqrt(aa), 1e-6);
        ASSERT_TRUE(records[s].cosine);
        EXPECT_NEAR(*records[s].cosine, ab / std::sqrt(aa * bb), 1e-5);
      }
    }
  }
}

TEST(LayerMetricsTest, ACosineWithNothingIsNone) {
  const std::vector<LayerSlice> slice = {{.layer = "0", .begin = 0, .end = 2}};
  const std::vector<float> some = {1, 2};
  const std::vector<float> zero = {0, 0};
  EXPECT_FALSE(layer_records(slice, measure_layers(slice, some, some), 1)[0].cosine);  // Alone.
  EXPECT_FALSE(layer_records(slice, measure_layers(slice, zero, some), 0)[0].cosine);  // Abstains.
  const std::vector<float> half = {0.5, 1};  // The other is zero.
  EXPECT_FALSE(layer_records(slice, measure_layers(slice, some, half), 0.5)[0].cosine);
}

}  // namespace
}  // namespace atl::method
