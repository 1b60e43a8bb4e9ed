// Llama, Mistral, Qwen 2 and Qwen 3: they differ in biases, in norms of query and key heads, and in
// windows.
#include <fmt/format.h>

#include <span>
#include <vector>

#include "atoll/model/attention.h"
#include "atoll/model/decoder.h"
#include "atoll/model/families.h"
#include "atoll/model/operations.h"

namespace atl::model {
namespace {

class Llama final : public Decoder {
 public:
  Llama(const ModelConfig& config, const Parameters& parameters)
      : config_(config),
        attention_(config, parameters.values_P().device()),
        embedding_(parameters.weight("model.embed_tokens.weight")),
        final_norm_(parameters.weight("model.norm.weight")),
        head_(config.tie_embeddings ? embedding_ : parameters.weight("lm_head.weight")) {
    for (int64_t index = 0; index < config.num_layers; ++index) {
      const auto name = [&](const char* part) {
        return fmt::format("model.layers.{}.{}", index, part);
      };
      const auto projection = [&](const char* first, const char* last, bool has_bias) {
        return parameters.projection(name(first), name(last), has_bias);
      };
      const auto norm = [&](const char* part) { return parameters.weight(name(part) + ".weight"); };
      Layer layer;
      layer.attention_norm = norm("input_layernorm");
      layer.qkv = projection("self_attn.q_proj", "self_attn.v_proj", has_qkv_bias(config));
      layer.output = projection("self_attn.o_proj", "self_attn.o_proj", has_output_bias(config));
      if (has_head_norms()) {
        layer.query_norm = norm("self_attn.q_norm");
        layer.key_norm = norm("self_attn.k_norm");
      }
      layer.mlp_norm = norm("post_attention_layernorm");
      layer.gate_up = projection("mlp.gate_proj", "mlp.up_proj", config.mlp_bias);
      layer.down = projection("mlp.down_proj", "mlp.down_proj", config.mlp_bias);
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

  const Weight& head_VC() const override { return head_; }

 private:
  struct Layer {
    Weight attention_norm, query_norm, key_norm, mlp_norm;
    Projection qkv, output, gate_up, down;
  };
  bool has_head_norms() const { return config_.architecture == "qwen3"; }

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

  ModelConfig config_;
  Attention attention_;
  Weight embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<const Decoder> make_llama(const ModelConfig& config, const Parameters& parameters) {
  return std::make_unique<Llama>(config, parameters);
}

}  // namespace atl::model
