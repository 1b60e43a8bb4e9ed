// OLMo 2: the residual stream itself is read, and what a part adds to it is normalised.
#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <span>
#include <vector>

#include "atoll/model/decoder.h"
#include "atoll/model/operations.h"
#include "atoll/weights/families.h"

namespace atl::model {
namespace {

class Olmo2 final : public Decoder {
 public:
  Olmo2(const weights::ModelConfig& config, const Parameters& parameters)
      : Decoder(config, parameters, "model.embed_tokens.weight", "lm_head.weight"),
        final_norm_(parameters.weight("model.norm.weight")) {
    for (int64_t index = 0; index < config.num_layers; ++index) {
      const ParameterScope scope(parameters, fmt::format("model.layers.{}.", index));
      layers_.push_back({
          .query_norm = scope.weight("self_attn.q_norm"),
          .key_norm = scope.weight("self_attn.k_norm"),
          .attention_norm = scope.weight("post_attention_layernorm"),
          .mlp_norm = scope.weight("post_feedforward_layernorm"),
          .qkv = scope.projection("self_attn.q_proj", "self_attn.v_proj",
                                  weights::has_qkv_bias(config)),
          .output = scope.projection("self_attn.o_proj", weights::has_output_bias(config)),
          .gate_up = scope.projection("mlp.gate_proj", "mlp.up_proj", false),
          .down = scope.projection("mlp.down_proj", false),
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
          project(layer.output, attention_(normalised(layer, project(layer.qkv, x_BTC)),
                                           static_cast<int64_t>(index), cached));
      x_BTC = x_BTC + rms_norm(layer.attention_norm, attended_BTC, epsilon);
      const at::Tensor mlp_BTC = project(layer.down, swiglu(project(layer.gate_up, x_BTC)));
      x_BTC = x_BTC + rms_norm(layer.mlp_norm, mlp_BTC, epsilon);
    }
    return rms_norm(final_norm_, x_BTC, epsilon);
  }

 private:
  struct Layer {
    Weight query_norm, key_norm, attention_norm, mlp_norm;
    Projection qkv, output, gate_up, down;
  };

  /// One norm over the queries of all heads, one over the keys.
  at::Tensor normalised(const Layer& layer, const at::Tensor& qkv_BTF) const {
    const int64_t queries = config_.num_heads * config_.head_size();
    const int64_t keys = config_.num_kv_heads * config_.head_size();
    const auto part = [&](int64_t begin, int64_t size) { return qkv_BTF.narrow(2, begin, size); };
    return at::cat({rms_norm(layer.query_norm, part(0, queries), config_.norm_eps),
                    rms_norm(layer.key_norm, part(queries, keys), config_.norm_eps),
                    part(queries + keys, keys)},
                   2);
  }

  Weight final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<const Decoder> make_olmo2(const weights::ModelConfig& config,
                                          const Parameters& parameters) {
  return std::make_unique<Olmo2>(config, parameters);
}

}  // namespace atl::model
