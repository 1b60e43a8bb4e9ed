// An adapter of frozen layers learns.
#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "atoll/model/frozen_layers.h"
#include "atoll/train/learner.h"

namespace atl::train {

std::vector<at::Tensor> LocalLayers::learn(std::span<const at::Tensor> inputs_BTC,
                                           const model::Adapter& adapter, const Turn& turn) {
  const model::Decoder& decoder = model_.decoder();
  const at::Tensor gradients_P = at::empty_like(adapter.parameters().values_P());
  std::vector<at::Tensor> dinputs_BTC;
  for (size_t i = 0; i < inputs_BTC.size(); ++i) {
    std::vector<model::KeptLayer> kept;
    at::Tensor x_BTC = inputs_BTC[i];
    for (int64_t layer = 0; layer < model_.config().num_layers; ++layer) {
      kept.push_back(model::keep_layer(decoder, layer, x_BTC, adapter));
      x_BTC = kept.back().y_BTC.detach();
    }
    at::Tensor dx_BTC = turn(i, x_BTC);
    for (; !kept.empty(); kept.pop_back()) {
      dx_BTC = model::go_back(decoder, std::move(kept.back()), dx_BTC, adapter, gradients_P);
    }
    const at::NoGradGuard no_grad;
    if (!adapter.config().is_prompt()) adapter.parameters().gradients_P().add_(gradients_P);
    dinputs_BTC.push_back(dx_BTC);
  }
  return dinputs_BTC;
}

at::Tensor LocalLayers::read(const at::Tensor& x_BTC, const model::Adapter& adapter) {
  return model::go_forwards(model_.decoder(), {0, model_.config().num_layers}, x_BTC, adapter);
}

at::Tensor AdapterLearner::embedded(const Batch& batch) const {
  const at::NoGradGuard no_grad;
  const at::Tensor x_BTC = model_.decoder().embed(batch.inputs_BT, {});
  if (num_before() == 0) return x_BTC;
  const at::Tensor prompt_TC =
      adapter_.parameters().view(adapter_.parameters().specs().front().name);
  return at::cat({prompt_TC.unsqueeze(0).expand({x_BTC.size(0), -1, -1}), x_BTC}, 1);
}

double AdapterLearner::add_gradients(std::span<const Batch> batches, double scale) {
  std::vector<at::Tensor> inputs_BTC;
  for (const Batch& batch : batches) inputs_BTC.push_back(embedded(batch));
  std::vector<double> losses(batches.size());
  LossOptions options = options_;
  options.scale = scale / static_cast<double>(batches.size());
  const auto turn = [&](size_t i, const at::Tensor& y_BTC) {
    at::Tensor leaf_BTC = y_BTC.detach();
    leaf_BTC.set_requires_grad(true);
    at::Tensor hidden_BTC;
    {
      const at::AutoGradMode with_graph(true);
      hidden_BTC = model_.decoder().finish(leaf_BTC);
    }
    const at::Tensor dhidden_BTC = at::zeros_like(hidden_BTC.detach());
    const int64_t count = hidden_BTC.size(1) - num_before();
    const at::Tensor own_BTC = hidden_BTC.detach().narrow(1, num_before(), count).contiguous();
    const at::Tensor down_BTC = at::empty_like(own_BTC);
    losses[i] = head_gradient(model_, own_BTC, batches[i].targets_BT, options, down_BTC)
                    .cross_entropy.item<double>();
    dhidden_BTC.narrow(1, num_before(), count).copy_(down_BTC);
    return torch::autograd::grad({hidden_BTC}, {leaf_BTC}, {dhidden_BTC}).front();
  };
  const std::vector<at::Tensor> dinputs_BTC = layers_.learn(inputs_BTC, adapter_, turn);
  const at::NoGradGuard no_grad;
  if (num_before() > 0) {
    const at::Tensor gradients_TC =
        adapter_.parameters().gradients_P().view({num_before(), model_.config().hidden_size});
    for (const at::Tensor& dx_BTC : dinputs_BTC) {
      gradients_TC.add_(dx_BTC.narrow(1, 0, num_before()).sum(0));
    }
  }
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(batches.size());
}

double AdapterLearner::cross_entropy(const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor y_BTC = layers_.read(embedded(batch), adapter_);
  const at::Tensor hidden_BTC = model_.decoder().finish(y_BTC);
  const at::Tensor own_BTC =
      hidden_BTC.narrow(1, num_before(), hidden_BTC.size(1) - num_before()).contiguous();
  return head_gradient(model_, own_BTC, batch.targets_BT, {}, {}).cross_entropy.item<double>();
}

}  // namespace atl::train
