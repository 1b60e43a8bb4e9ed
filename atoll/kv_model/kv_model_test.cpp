#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/kv/turns.h"
#include "atoll/kv_model/fit.h"
#include "atoll/kv_model/measure.h"
#include "atoll/kv_model/planes.h"
#include "atoll/kv_model/schemes.h"
#include "atoll/kv_model/sensitivity.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/weights/hf_folder.h"

namespace atl::kv_model {
namespace {

constexpr int64_t kLength = 96;

weights::ModelConfig small() {
  weights::ModelConfig config;
  config.vocab_size = 50;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_layers = 3;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.max_positions = 256;
  config.tie_embeddings = true;
  return config;
}

std::vector<int64_t> drawn_ids(uint64_t seed, int64_t count) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int64_t>(random_bits(seed, 0, static_cast<uint64_t>(i)) % 50));
  }
  return ids;
}

/// A model whose files are in bfloat16, thus its keys and values too, and the same for training.
class KvModelTest : public testing::Test {
 protected:
  KvModelTest() : trained_(small(), at::kCPU, model::Purpose::kTraining) {
    trained_.initialise(5);
    const at::Tensor& values_P = trained_.parameters().values_P();
    values_P.detach().mul_(6);  // So that tokens differ.
    weights::save_hf_model(
        folder_.path(), small(), {},
        {values_P.const_data_ptr<float>(), static_cast<size_t>(values_P.numel())},
        {.type = weights::DType::kBF16});
    model_.emplace(model::load_model(folder_.path(), at::kCPU));
    model::load_weights(trained_, weights::ModelFiles(folder_.path(), small()));
  }

  model::KvCache cache_of(const std::vector<int64_t>& ids) const {
    model::KvCache cache = model_->kv_cache();
    model_->hidden_BTC(at::tensor(ids, at::kLong).unsqueeze(0), cache);
    return cache;
  }

  TestFolder folder_;
  model::Model trained_;
  std::optional<model::Model> model_;
};

TEST_F(KvModelTest, ACacheComesBackFromItsPlanesBitForBit) {
  const model::KvCache cache = cache_of(drawn_ids(1, 75));
  const auto kv_PCT = planes_of(cache, {0, 3}, 70);
  EXPECT_EQ(kv_PCT.size(), 3U * 2 * 16 * 70);
  model::KvCache other = model_->kv_cache();
  append_planes(kv_PCT, small(), {0, 3}, other);
  ASSERT_EQ(other.length(), 70);
  for (int64_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(at::equal(other.keys_HSN(layer, 70), cache.keys_HSN(layer, 70)));
    EXPECT_TRUE(at::equal(other.values_HSN(layer, 70), cache.values_HSN(layer, 70)));
  }
}

TEST_F(KvModelTest, CachesOfFp32AreRefused) {
  const model::Model wide(small(), at::kCPU, model::Purpose::kInference);
  model::KvCache cache = wide.kv_cache();
  wide.hidden_BTC(at::tensor(drawn_ids(1, 5), at::kLong).unsqueeze(0), cache);
  EXPECT_THROW(planes_of(cache, {0, 3}, 5), InputError);
}

TEST_F(KvModelTest, TheFirstLayersKeysAreAlikeWhateverTheirPosition) {
  // A text of one token only: before they are turned its keys are all the same.
  const model::KvCache cache = cache_of(std::vector<int64_t>(40, 7));
  const auto kv_PCT = planes_of(cache, {0, 3}, 40);
  const kv::Turns turns = turns_of(small(), 0, 40);
  const auto plane_CT = std::span(kv_PCT).first(16 * 40);
  std::vector<float> y_CT(plane_CT.size());
  kv::straighten(plane_CT, turns, turns.of(0), std::vector<float>(16), y_CT);
  float largest = 0;
  for (const float value : y_CT) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < y_CT.size(); ++i) {
    EXPECT_NEAR(y_CT[i], y_CT[i / 40 * 40], 0.01F * largest);
  }
}

TEST_F(KvModelTest, GradientsAreThoseOfTheLossBehindAPrefix) {
  const std::vector<std::vector<int64_t>> texts = {drawn_ids(1, kLength), drawn_ids(2, kLength)};
  const Sensitivity found = measure_sensitivity(trained_, texts, 64, 1, {});
  for (const at::Tensor& moments_LCC : {found.keys_LCC, found.values_LCC}) {
    ASSERT_EQ(moments_LCC.sizes(), (std::vector<int64_t>{3, 16, 16}));
    for (int64_t layer = 0; layer < 3; ++layer) {
      EXPECT_TRUE(at::equal(moments_LCC[layer], moments_LCC[layer].t()));
      EXPECT_GT(moments_LCC[layer].trace().item<double>(), 0);
    }
  }
  // The same draws give the same moments; nothing is watched any more.
  const Sensitivity again = measure_sensitivity(trained_, texts, 64, 1, {});
  EXPECT_TRUE(at::equal(found.keys_LCC, again.keys_LCC));
}

TEST_F(KvModelTest, AFittedProfileTradesBitsForErrors) {
  std::vector<std::vector<int64_t>> texts;
  for (uint64_t i = 0; i < 12; ++i) texts.push_back(drawn_ids(10 + i, kLength));
  const Sensitivity sensitivity = measure_sensitivity(trained_, texts, 64, 1, {});
  kv::Profile profile =
      fit_profile(*model_, "m", texts, sensitivity,
                  {.group_layers = 2, .transform_bits = {4, 1.5}, .vectorwise_bits = {5, 2}}, {});
  ASSERT_EQ(profile.groups.size(), 4U);  // Of two layers, and of the one that is left.
  const Bytes bytes = kv::write_profile(profile);
  const kv::Profile read = kv::read_profile(bytes);

  std::vector<std::vector<int64_t>> windows;
  const WindowShape shape{.prefix = kLength, .scored = 30};
  for (uint64_t i = 0; i < 3; ++i) windows.push_back(drawn_ids(100 + i, shape.length()));
  auto schemes = schemes_without_profile();
  for (auto& scheme : schemes_of(read, kv::profile_id(bytes))) schemes.push_back(std::move(scheme));
  const Rates found = measure_rates(*model_, "m", windows, shape, schemes, {});
  ASSERT_EQ(found.rates.size(), 8U);
  const auto size_of = [](const Rate& rate) {
    double size = 0;
    for (const double difference : rate.loss_differences) size += std::abs(difference);
    return size;
  };
  EXPECT_EQ(size_of(found.rates[0]), 0);  // Level 0.
  EXPECT_LT(size_of(found.rates[1]), size_of(found.rates[2]));
  for (const size_t fine : {size_t{4}, size_t{6}}) {
    EXPECT_GT(found.rates[fine].bits, found.rates[fine + 1].bits);
    EXPECT_LT(size_of(found.rates[fine]), size_of(found.rates[fine + 1]));
  }
}

}  // namespace
}  // namespace atl::kv_model
