// Gradients of adapters beside layers that stay as they are, by finite differences; and that an
// adapter is what its product added to the weights would be.
#include "atoll/model/frozen_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/random.h"
#include "atoll/model/model.h"
#include "atoll/testing/sample_models.h"

namespace atl::model {
namespace {

using weights::AdapterConfig;
using weights::ModelConfig;

Model made(const ModelConfig& config) {
  Model model(config, at::kCPU, Purpose::kInference);
  model.initialise(3);
  for (const auto& spec : model.parameters().specs()) {  // So that nonlinear parts matter.
    if (spec.shape.size() > 1) model.parameters().view(spec.name).mul_(6);
  }
  return model;
}

at::Tensor drawn(std::vector<int64_t> shape, uint64_t stream) {
  const at::Tensor values = at::empty(shape, at::kFloat);
  auto* const data = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = static_cast<float>(random_normal(5, stream, static_cast<uint64_t>(i)));
  }
  return values;
}

Adapter adapter_of(const ModelConfig& config, LayerRange layers, const std::string& targets) {
  Adapter adapter(config, {.rank = 2, .alpha = 3, .targets = weights::targets_of(targets, config)},
                  layers, at::kCPU, Purpose::kTraining);
  adapter.initialise(1);
  const at::NoGradGuard no_grad;  // B is not zero in mid-training.
  adapter.parameters().values_P().add_(drawn({adapter.parameters().values_P().numel()}, 9), 0.1);
  return adapter;
}

/// The gradients of sum(w * layers(x)): of x, and of the adapter's values.
std::pair<at::Tensor, at::Tensor> gradients(const Model& model, LayerRange layers,
                                            const at::Tensor& x_BTC, const at::Tensor& w_BTC,
                                            const Adapter& adapter, bool keeps = true) {
  std::vector<KeptLayer> kept;
  at::Tensor x = x_BTC;
  for (int64_t layer = layers.begin; layer < layers.end; ++layer) {
    kept.push_back(keep_layer(model.decoder(), layer, x, adapter));
    x = kept.back().y_BTC.detach();
    if (!keeps) kept.back().y_BTC.reset();
  }
  const at::Tensor gradients_P = at::empty_like(adapter.parameters().values_P());
  at::Tensor dx = w_BTC;
  for (; !kept.empty(); kept.pop_back()) {
    dx = go_back(model.decoder(), std::move(kept.back()), dx, adapter, gradients_P);
  }
  return {dx, gradients_P};
}

double value(const Model& model, LayerRange layers, const at::Tensor& x_BTC,
             const at::Tensor& w_BTC, const Adapter& adapter) {
  return (go_forwards(model.decoder(), layers, x_BTC, adapter).to(at::kDouble) * w_BTC)
      .sum()
      .item<double>();
}

class FrozenLayers : public ::testing::TestWithParam<size_t> {};

TEST_P(FrozenLayers, GradientsAreThoseOfFiniteDifferences) {
  const ModelConfig config = weights::varieties()[GetParam()];
  const Model model = made(config);
  const LayerRange all{0, config.num_layers};
  const Adapter adapter = adapter_of(config, all, "all-linear");
  const at::Tensor x_BTC = drawn({2, 5, config.hidden_size}, 1);
  const at::Tensor w_BTC = drawn({2, 5, config.hidden_size}, 2);
  const auto [dx_BTC, gradients_P] = gradients(model, all, x_BTC, w_BTC, adapter);
  const at::NoGradGuard no_grad;
  // Along the gradient, where the slope is its length: any other direction hides errors.
  const auto expect_slope = [&](const at::Tensor& values, const at::Tensor& gradient,
                                const std::string& name) {
    const double length = gradient.to(at::kDouble).norm().item<double>();
    at::Tensor direction = gradient / length;
    if (length < 1e-3) {  // It has none, or says so wrongly.
      direction = drawn(values.sizes().vec(), 11);
      direction.div_(direction.norm());
    }
    const double step = 1e-2;
    const at::Tensor before = values.clone();
    values.add_(direction, step);
    const double above = value(model, all, x_BTC, w_BTC, adapter);
    values.copy_(before).add_(direction, -step);
    const double below = value(model, all, x_BTC, w_BTC, adapter);
    values.copy_(before);
    EXPECT_NEAR((above - below) / (2 * step), length, 5e-2 * length + 5e-3)
        << config.architecture << ' ' << name;
  };
  expect_slope(x_BTC, dx_BTC, "inputs");
  for (const auto& spec : adapter.parameters().specs()) {
    expect_slope(adapter.parameters().view(spec.name),
                 gradients_P.narrow(0, spec.offset, spec.size).view(spec.shape), spec.name);
  }
}

TEST_P(FrozenLayers, BitsHangNeitherOnSpansNorOnWhatIsKept) {
  const ModelConfig config = weights::varieties()[GetParam()];
  const Model model = made(config);
  const Adapter whole = adapter_of(config, {0, config.num_layers}, "");
  const at::Tensor x_BTC = drawn({2, 5, config.hidden_size}, 1);
  const at::Tensor w_BTC = drawn({2, 5, config.hidden_size}, 2);
  const auto [dx_BTC, gradients_P] = gradients(model, {0, 2}, x_BTC, w_BTC, whole);
  // Each layer alone, by who has the values of that layer alone.
  const auto part = [&](int64_t layer) {
    Adapter adapter(config, whole.config(), {layer, layer + 1}, at::kCPU, Purpose::kInference);
    const at::NoGradGuard no_grad;
    const auto [begin, count] = whole.values_of({layer, layer + 1});
    adapter.parameters().values_P().copy_(whole.parameters().values_P().narrow(0, begin, count));
    return adapter;
  };
  const Adapter first = part(0);
  const Adapter second = part(1);
  const at::Tensor middle_BTC = go_forwards(model.decoder(), {0, 1}, x_BTC, first);
  const auto back = gradients(model, {1, 2}, middle_BTC, w_BTC, second, false);
  const auto rest = gradients(model, {0, 1}, x_BTC, back.first, first, false);
  EXPECT_TRUE(rest.first.equal(dx_BTC)) << config.architecture;
  const int64_t half = first.parameters().values_P().numel();
  EXPECT_TRUE(rest.second.equal(gradients_P.narrow(0, 0, half))) << config.architecture;
  EXPECT_TRUE(back.second.equal(gradients_P.narrow(0, half, half))) << config.architecture;
}

/// Row by row as it would be alone, and as the merged weights are.
TEST_P(FrozenLayers, TextsWithDifferentAdaptersAreReadInOnePass) {
  const ModelConfig config = weights::varieties()[GetParam()];
  const Model model = made(config);
  const Adapter adapter = adapter_of(config, {0, config.num_layers}, "all-linear");
  const at::NoGradGuard no_grad;
  const at::Tensor x_1TC = drawn({1, 4, config.hidden_size}, 1);
  const auto read = [&](std::vector<const Adapter*> adapters) {
    std::vector<KvCache> caches;
    caches.reserve(adapters.size());
    std::vector<CachedRow> rows;
    std::vector<at::Tensor> inputs;
    for (const Adapter* each : adapters) {
      caches.push_back(model.kv_cache());
      EXPECT_TRUE(caches.back().prepare(4));
      rows.push_back({&caches.back(), 4, each});
      inputs.push_back(x_1TC);
    }
    return model.layers_1TC({0, config.num_layers}, at::cat(inputs, 1), rows);
  };
  const at::Tensor plain = read({nullptr});
  const at::Tensor adapted = read({&adapter});
  EXPECT_FALSE(plain.equal(adapted)) << config.architecture;
  const at::Tensor mixed = read({nullptr, &adapter, &adapter, nullptr});
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(mixed.narrow(1, 4 * i, 4).equal(i == 1 || i == 2 ? adapted : plain))
        << config.architecture << ' ' << i;
  }
}

INSTANTIATE_TEST_SUITE_P(AllFamilies, FrozenLayers,
                         ::testing::Range<size_t>(0, weights::varieties().size()));

TEST(FrozenLayersTest, AdapterIsItsProductAddedToTheWeights) {
  const ModelConfig config = weights::tiny();
  Model model = made(config);
  const LayerRange all{0, config.num_layers};
  const Adapter adapter = adapter_of(config, all, "all-linear");
  const at::Tensor x_BTC = drawn({2, 5, config.hidden_size}, 1);
  const at::Tensor y_BTC = go_forwards(model.decoder(), all, x_BTC, adapter);
  const at::NoGradGuard no_grad;
  for (const auto& module : weights::adapted_modules(config, adapter.config())) {
    const std::string name = "base_model.model." + module.name;
    const at::Tensor delta = adapter.parameters()
                                 .view(name + ".lora_B.weight")
                                 .mm(adapter.parameters().view(name + ".lora_A.weight"));
    model.parameters().view(module.name + ".weight").add_(delta, adapter.scale());
  }
  const Adapter none(config, {.rank = 0, .prompt_tokens = 1}, all, at::kCPU, Purpose::kInference);
  EXPECT_TRUE(at::allclose(go_forwards(model.decoder(), all, x_BTC, none), y_BTC, 1e-4, 1e-4));
}

}  // namespace
}  // namespace atl::model
