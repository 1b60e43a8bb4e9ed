// GPT-NeoX and Pythia: LayerNorm with biases, a part of each head turns, and attention and MLP may
// read the same residual stream.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <fmt/format.h>

#include <span>
#include <vector>

#include "atoll/model/decoder.h"
#include "atoll/model/operations.h"

namespace atl::model {
namespace {

class GptNeoX final : public Decoder {
 public:
  GptNeoX(const weights::ModelConfig& config, const Parameters& parameters)
      : Decoder(config, parameters, "gpt_neox.embed_in.weight", "embed_out.weight"),
        final_norm_(ParameterScope(parameters, "gpt_neox.").projection("final_layer_norm", true)) {
    for (int64_t index = 0; index < config.num_layers; ++index) {
      const ParameterScope scope(parameters, fmt::format("gpt_neox.layers.{}.", index));
      layers_.push_back({
          .attention_norm = scope.projection("input_layernorm", true),
          .mlp_norm = scope.projection("post_attention_layernorm", true),
          .qkv = scope.projection("attention.query_key_value", config.attention_bias),
          .output = scope.projection("attention.dense", config.attention_bias),
          .up = scope.projection("mlp.dense_h_to_4h", true),
          .down = scope.projection("mlp.dense_4h_to_h", true),
      });
    }
  }

  at::Tensor hidden_BTC(const at::Tensor& tokens_BT,
                        std::span<const CachedRow> cached) const override {
    const double epsilon = config_.norm_eps;
    at::Tensor x_BTC = embed(embedding_, tokens_BT);
    for (size_t index = 0; index < layers_.size(); ++index) {
      const Layer& layer = layers_[index];
      const at::Tensor attended_BTC =
          attend(layer, layer_norm(layer.attention_norm, x_BTC, epsilon),
                 static_cast<int64_t>(index), cached);
      const at::Tensor with_attention_BTC = x_BTC + attended_BTC;
      const at::Tensor& read_BTC = config_.parallel_residual ? x_BTC : with_attention_BTC;
      x_BTC = with_attention_BTC + mlp(layer, layer_norm(layer.mlp_norm, read_BTC, epsilon));
    }
    return layer_norm(final_norm_, x_BTC, epsilon);
  }

 private:
  struct Layer {
    Projection attention_norm, mlp_norm, qkv, output, up, down;
  };

  at::Tensor attend(const Layer& layer, const at::Tensor& x_BTC, int64_t index,
                    std::span<const CachedRow> cached) const {
    // A row holds query, key and value head by head; attention takes all queries first.
    const at::Tensor qkv_BTF = project(layer.qkv, x_BTC)
                                   .unflatten(2, {config_.num_heads, 3, config_.head_size()})
                                   .transpose(2, 3)
                                   .flatten(2);
    return project(layer.output, attention_(qkv_BTF, index, cached));
  }

  at::Tensor mlp(const Layer& layer, const at::Tensor& x_BTC) const {
    const char* kind = config_.activation == "gelu" ? "none" : "tanh";
    return project(layer.down, at::gelu(project(layer.up, x_BTC), kind));
  }

  Projection final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<const Decoder> make_gpt_neox(const weights::ModelConfig& config,
                                             const Parameters& parameters) {
  return std::make_unique<GptNeoX>(config, parameters);
}

}  // namespace atl::model
