#include "atoll/model/kept_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <vector>

#include "atoll/base/error.h"

namespace atl::model {
namespace {

Model made(weights::ModelConfig config) {
  config.vocab_size = 31;
  config.hidden_size = 16;
  config.intermediate_size = 24;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.max_positions = 40;
  Model model(config, at::kCPU, Purpose::kInference);
  model.initialise(3);
  return model;
}

/// Layer by layer, by the decoder of the whole model.
at::Tensor through(const Model& model, const std::vector<int64_t>& layers) {
  const at::NoGradGuard no_grad;
  const at::Tensor tokens_BT = at::arange(20, at::kLong).view({1, 20});
  at::Tensor x_BTC = model.decoder().embed(tokens_BT, {});
  for (const int64_t layer : layers) x_BTC = model.decoder().layer(layer, x_BTC, {});
  return model.logits(model.decoder().finish(x_BTC));
}

TEST(KeptLayersTest, TheModelIsThatOfTheseLayers) {
  const Model source = made({.num_layers = 5});
  const std::vector<int64_t> layers{0, 3, 4};
  const Model kept = with_layers(source, layers);
  EXPECT_EQ(kept.config().num_layers, 3);
  EXPECT_TRUE(through(kept, {0, 1, 2}).equal(through(source, layers)));
  EXPECT_FALSE(through(kept, {0, 1, 2}).equal(through(source, {0, 1, 2})));
}

TEST(KeptLayersTest, EachKeepsItsWindow) {
  const Model source =
      made({.architecture = "olmo3", .num_layers = 6, .sliding_window = 5, .layer_pattern = "ssf"});
  const std::vector<int64_t> layers{0, 2, 3, 4};
  const Model kept = with_layers(source, layers);
  EXPECT_TRUE(through(kept, {0, 1, 2, 3}).equal(through(source, layers)));
}

TEST(KeptLayersTest, OnlyIncreasingLayersOfItsOwnCanBeKept) {
  const Model source = made({.num_layers = 3});
  for (const std::vector<int64_t>& layers : {std::vector<int64_t>{}, {3}, {-1}, {1, 1}, {2, 0}}) {
    EXPECT_THROW(with_layers(source, layers), UsageError);
  }
}

}  // namespace
}  // namespace atl::model
