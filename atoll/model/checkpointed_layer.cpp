#include "atoll/model/checkpointed_layer.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace atl::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

/// What the layer makes, and its losses if it has any and they are asked for.
variable_list outputs_of(const Decoder& decoder, int64_t index, const at::Tensor& x_BTC,
                         bool with_losses) {
  LayerLosses losses;
  variable_list outputs{decoder.layer(index, x_BTC, {}, with_losses ? &losses : nullptr)};
  for (at::Tensor& loss : losses.balance) outputs.push_back(std::move(loss));
  return outputs;
}

struct Checkpointed : Function<Checkpointed> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x_BTC,
                               const Decoder& decoder, int64_t index, bool with_losses) {
    context->save_for_backward({x_BTC});
    context->saved_data["decoder"] = reinterpret_cast<int64_t>(&decoder);
    context->saved_data["index"] = index;
    context->saved_data["with_losses"] = with_losses;
    // With a graph, as on the way back: without one some operations are others, with other bits.
    const at::AutoGradMode with_graph(true);
    const at::Tensor own_BTC = x_BTC.detach().set_requires_grad(true);
    variable_list outputs = outputs_of(decoder, index, own_BTC, with_losses);
    for (at::Tensor& output : outputs) output = output.detach();
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& decoder = *reinterpret_cast<const Decoder*>(context->saved_data["decoder"].toInt());
    at::Tensor x_BTC = context->get_saved_variables()[0].detach();
    x_BTC.set_requires_grad(true);
    variable_list outputs;
    {
      const at::AutoGradMode with_graph(true);
      outputs = outputs_of(decoder, context->saved_data["index"].toInt(), x_BTC,
                           context->saved_data["with_losses"].toBool());
    }
    torch::autograd::backward(outputs, gradients);
    return {x_BTC.grad(), {}, {}, {}};
  }
};

}  // namespace

at::Tensor checkpointed_layer(const Decoder& decoder, int64_t index, const at::Tensor& x_BTC,
                              LayerLosses* losses) {
  variable_list outputs = Checkpointed::apply(x_BTC, decoder, index, losses != nullptr);
  for (size_t i = 1; i < outputs.size(); ++i) losses->balance.push_back(std::move(outputs[i]));
  return outputs[0];
}

}  // namespace atl::model
