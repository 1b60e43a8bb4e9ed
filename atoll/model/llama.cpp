// Llama, Mistral, Qwen 2 and Qwen 3: they differ in biases, in norms of query and key heads, and in
// windows.
#include <fmt/format.h>

#include <span>
#include <vector>

#include "atoll/model/decoder.h"
#include "atoll/model/operations.h"
#include "atoll/weights/families.h"

namespace atl::model {
namespace {

class Llama final : public Decoder {
 public:
  Llama(const weights::ModelConfig& config, const Parameters& parameters)
      : Decoder(config, parameters, "model.embed_tokens.weight", "lm_head.weight"),
        final_norm_(parameters.weight("model.norm.weight")) {
    for (int64_t index = 0; index < config.num_layers; ++index) {
      const ParameterScope scope(parameters, fmt::format("model.layers.{}.", index));
      Layer layer;
      layer.attention_norm = scope.weight("input_layernorm");
      layer.qkv =
          scope.projection("self_attn.q_proj", "self_attn.v_proj", weights::has_qkv_bias(config));
      layer.output = scope.projection("self_attn.o_proj", weights::has_output_bias(config));
      if (has_head_norms()) {
        layer.query_norm = scope.weight("self_attn.q_norm");
        layer.key_norm = scope.weight("self_attn.k_norm");
      }
      layer.mlp_norm = scope.weight("post_attention_layernorm");
      layer.gate_up = scope.projection("mlp.gate_proj", "mlp.up_proj", config.mlp_bias);
      layer.down = scope.projection("mlp.down_proj", config.mlp_bias);
      layers_.push_back(std::move(layer));
    }
  }

  at::Tensor hidden_BTC(const at::Tensor& tokens_BT,
                        std::span<const CachedRow> cached) const override {
    const double epsilon = config_.norm_eps;
    at::Tensor residual_BTC = embed(embedding_, tokens_BT);
    at::Tensor x_BTC = rms_norm(layers_.front().attention_norm, residual_BTC, epsilon);
    for (size_t index = 0; index < layers_.size(); ++index) {
      const Layer& layer = layers_[index];
      const Weight& next_norm =
          index + 1 < layers_.size() ? layers_[index + 1].attention_norm : final_norm_;
      const at::Tensor attended_BTC = attend(static_cast<int64_t>(index), x_BTC, cached);
      std::tie(residual_BTC, x_BTC) =
          add_rms_norm(layer.mlp_norm, residual_BTC, attended_BTC, epsilon);
      const at::Tensor mlp_BTC = project(layer.down, swiglu(project(layer.gate_up, x_BTC)));
      std::tie(residual_BTC, x_BTC) = add_rms_norm(next_norm, residual_BTC, mlp_BTC, epsilon);
    }
    return x_BTC;
  }

 private:
  struct Layer {
    Weight attention_norm, query_norm, key_norm, mlp_norm;
    Projection qkv, output, gate_up, down;
  };
  bool has_head_norms() const {
    return weights::family_of(config_).qk_norm == weights::QkNorm::kPerHead;
  }

  at::Tensor attend(int64_t index, const at::Tensor& x_BTC,
                    std::span<const CachedRow> cached) const {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    at::Tensor qkv_BTF = project(layer.qkv, x_BTC);
    if (has_head_norms()) {
      const AttentionShape shape{x_BTC.size(0), x_BTC.size(1), config_.num_heads,
                                 config_.num_kv_heads, config_.head_size()};
      qkv_BTF = head_norm(shape, layer.query_norm, layer.key_norm, qkv_BTF, config_.norm_eps);
    }
    return project(layer.output, attention_(qkv_BTF, index, cached));
  }

  Weight final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<const Decoder> make_llama(const weights::ModelConfig& config,
                                          const Parameters& parameters) {
  return std::make_unique<Llama>(config, parameters);
}

}  // namespace atl::model
