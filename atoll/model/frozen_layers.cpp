#include "atoll/model/frozen_layers.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "atoll/base/check.h"

namespace atl::model {

KeptLayer keep_layer(const Decoder& decoder, int64_t index, const at::Tensor& x_BTC,
                     const Adapter& adapter) {
  const at::AutoGradMode with_graph(true);
  KeptLayer kept{.index = index, .x_BTC = x_BTC.detach(), .y_BTC = {}};
  kept.x_BTC.set_requires_grad(true);
  kept.y_BTC = decoder.layer(index, kept.x_BTC, adapter);
  return kept;
}

at::Tensor go_back(const Decoder& decoder, KeptLayer layer, const at::Tensor& dy_BTC,
                   const Adapter& adapter, const at::Tensor& gradients_P) {
  if (!layer.y_BTC.defined()) layer = keep_layer(decoder, layer.index, layer.x_BTC, adapter);
  torch::autograd::variable_list inputs{layer.x_BTC};
  for (at::Tensor& leaf : adapter.leaves(layer.index)) inputs.push_back(std::move(leaf));
  const auto gradients =
      torch::autograd::grad({layer.y_BTC}, inputs, {dy_BTC}, /*retain_graph=*/false);
  const at::NoGradGuard no_grad;
  int64_t at = adapter.values_of({layer.index, layer.index + 1}).first;
  for (size_t i = 1; i < gradients.size(); ++i) {
    gradients_P.narrow(0, at, gradients[i].numel()).copy_(gradients[i].reshape(-1));
    at += gradients[i].numel();
  }
  return gradients[0];
}

at::Tensor go_forwards(const Decoder& decoder, LayerRange layers, const at::Tensor& x_BTC,
                       const Adapter& adapter) {
  at::Tensor out_BTC = x_BTC;
  for (int64_t index = layers.begin; index < layers.end; ++index) {
    out_BTC = keep_layer(decoder, index, out_BTC, adapter).y_BTC.detach();
  }
  return out_BTC;
}

int64_t bytes_of_graph(const weights::ModelConfig& config, int64_t num_tokens) {
  const int64_t heads = (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_size();
  const int64_t per_token = 6 * config.hidden_size + 2 * heads + 4 * config.intermediate_size;
  return num_tokens * per_token * static_cast<int64_t>(sizeof(float));
}

}  // namespace atl::model
