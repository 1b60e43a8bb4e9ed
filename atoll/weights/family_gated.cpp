#include "atoll/weights/family_gated.h"

#include <fmt/format.h>

#include "atoll/weights/hf_keys.h"
#include "atoll/weights/tensor_list.h"

namespace atl::weights {
namespace {

void add_attention(const Gated& gated, const ModelConfig& config, TensorList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t queries = config.num_heads * config.head_size();
  const int64_t keys = config.num_kv_heads * config.head_size();
  if (gated.has_joined_matrices) {
    list.weight(Role::kQueryKeyValue, "self_attn.qkv_proj", {queries + 2 * keys, hidden});
  } else {
    list.weight(Role::kQueryKeyValue, "self_attn.q_proj", {queries, hidden});
    list.weight(Role::kQueryKeyValue, "self_attn.k_proj", {keys, hidden});
    list.weight(Role::kQueryKeyValue, "self_attn.v_proj", {keys, hidden});
  }
  if (config.attention_bias || gated.has_qkv_bias) {
    list.bias(Role::kQueryKeyValue, "self_attn.q_proj", queries);
    list.bias(Role::kQueryKeyValue, "self_attn.k_proj", keys);
    list.bias(Role::kQueryKeyValue, "self_attn.v_proj", keys);
  }
  if (gated.design.has_sinks) list.vector(Role::kSinks, "self_attn.sinks", config.num_heads);
  list.weight(Role::kAttentionOutput, "self_attn.o_proj", {hidden, queries});
  if (config.attention_bias) list.bias(Role::kAttentionOutput, "self_attn.o_proj", hidden);
  if (gated.design.qk_norm != QkNorm::kNone) {
    const bool is_whole = gated.design.qk_norm == QkNorm::kWhole;
    list.weight(Role::kQueryNorm, "self_attn.q_norm", {is_whole ? queries : config.head_size()});
    list.weight(Role::kKeyNorm, "self_attn.k_norm", {is_whole ? keys : config.head_size()});
  }
}

void add_mlp(const Gated& gated, const ModelConfig& config, TensorList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  if (gated.has_joined_matrices) {
    list.weight(Role::kMlpInput, "mlp.gate_up_proj", {2 * inner, hidden});
  } else {
    list.weight(Role::kMlpInput, "mlp.gate_proj", {inner, hidden});
    list.weight(Role::kMlpInput, "mlp.up_proj", {inner, hidden});
  }
  if (config.mlp_bias) {
    list.bias(Role::kMlpInput, "mlp.gate_proj", inner);
    list.bias(Role::kMlpInput, "mlp.up_proj", inner);
  }
  list.weight(Role::kMlpOutput, "mlp.down_proj", {hidden, inner});
  if (config.mlp_bias) list.bias(Role::kMlpOutput, "mlp.down_proj", hidden);
}

void add_experts(const Experts& experts, const ModelConfig& config, int64_t layer,
                 TensorList& list) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  list.weight(Role::kRouter, experts.router, {config.num_experts, hidden});
  if (experts.are_one_tensor) {
    list.bias(Role::kRouter, experts.router, config.num_experts);
    list.begin(prefix + experts.prefix, layer);
    list.of_experts(Role::kMlpInput, "gate_up_proj", config.num_experts, hidden, 2 * inner);
    list.of_experts(Role::kMlpOutput, "down_proj", config.num_experts, inner, hidden);
  }
  for (int64_t expert = 0; !experts.are_one_tensor && expert < config.num_experts; ++expert) {
    list.begin(fmt::format("{}{}{}.", prefix, experts.prefix, expert), layer, expert);
    list.weight(Role::kMlpInput, experts.gate, {inner, hidden});
    list.weight(Role::kMlpInput, experts.up, {inner, hidden});
    list.weight(Role::kMlpOutput, experts.down, {hidden, inner});
  }
  list.begin(prefix, layer);
}

}  // namespace

std::vector<ParameterSpec> gated_tensors(const Gated& gated, const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const NormPlace place = gated.design.norm_place;
  TensorList list;
  const auto add_norm = [&](Role role, const char* name) {
    if (gated.design.norm != NormKind::kLayerWithoutAny) list.weight(role, name, {hidden});
  };
  list.begin("model.");
  list.weight(Role::kEmbedding, "embed_tokens", {config.vocab_size, hidden});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    list.begin(fmt::format("model.layers.{}.", layer), layer);
    if (place != NormPlace::kBehind) add_norm(Role::kAttentionNorm, "input_layernorm");
    add_attention(gated, config, list);
    // The same name, before the MLP and behind attention.
    add_norm(place == NormPlace::kBefore ? Role::kMlpNorm : Role::kAttentionNormBehind,
             "post_attention_layernorm");
    if (place == NormPlace::kAround) add_norm(Role::kMlpNorm, "pre_feedforward_layernorm");
    if (gated.experts.router != nullptr) {
      add_experts(gated.experts, config, layer, list);
    } else {
      add_mlp(gated, config, list);
    }
    if (place != NormPlace::kBefore) add_norm(Role::kMlpNormBehind, "post_feedforward_layernorm");
  }
  list.begin("model.");
  add_norm(Role::kFinalNorm, "norm");
  list.begin("");
  list.weight(Role::kHead, "lm_head", {config.vocab_size, hidden});
  return list.take();
}

void gated_keys(const Gated& gated, HfKeys& keys, ModelConfig& config) {
  const Family& family = family_of(config);
  keys.integer("hidden_size", config.hidden_size);
  keys.integer(gated.experts.width_key, config.intermediate_size);
  keys.integer("num_hidden_layers", config.num_layers);
  keys.integer("num_attention_heads", config.num_heads);
  const int64_t heads = config.num_heads;
  keys.integer("num_key_value_heads", config.num_kv_heads,
               gated.usual_kv_heads > 0 ? gated.usual_kv_heads : heads, heads);
  if (keys.writes()) config.head_dim = config.head_size();
  keys.integer("head_dim", config.head_dim, gated.usual_head_dim);
  keys.integer("max_position_embeddings", config.max_positions);
  if (!gated.limits.norm_eps) {
    keys.real("rms_norm_eps", config.norm_eps, gated.usual_norm_eps);
  } else if (!keys.writes()) {
    config.norm_eps = *gated.limits.norm_eps;
  }
  keys.rotary(config, {.usual_base = gated.usual_theta,
                       .usual_local_base = gated.usual_local_theta,
                       .differs_in_windows = gated.design.windows_are_plain});
  keys.flag("tie_word_embeddings", config.tie_embeddings, gated.usually_ties);
  keys.only(gated.activation_key,
            gated.design.mlp == MlpKind::kGatedByGelu ? "gelu_pytorch_tanh" : "silu");
  if (family.has("attention_bias")) {
    keys.flag("attention_bias", config.attention_bias, gated.usually_has_attention_bias);
  }
  keys.no_dropout("attention_dropout");
  if (family.has("mlp_bias")) keys.flag("mlp_bias", config.mlp_bias, false);
  if (family.has("clip_qkv")) keys.real_or_none("clip_qkv", config.clip_qkv, 0);
  if (gated.experts.router == nullptr) return;
  keys.integer_by(gated.experts.count_key, gated.experts.other_count_key, config.num_experts);
  keys.integer("num_experts_per_tok", config.experts_per_token);
  keys.router_loss(config.router_aux_loss, gated.experts.usual_aux_loss);
  if (family.has("router_normalises")) {
    keys.flag("norm_topk_prob", config.router_normalises, false);
  }
}

}  // namespace atl::weights
