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
    add_mlp(gated, config, list);
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
  keys.integer("intermediate_size", config.intermediate_size);
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
  if (family.has("attention_bias")) keys.flag("attention_bias", config.attention_bias, false);
  keys.no_dropout("attention_dropout");
  if (family.has("mlp_bias")) keys.flag("mlp_bias", config.mlp_bias, false);
  if (family.has("clip_qkv")) keys.real_or_none("clip_qkv", config.clip_qkv, 0);
}

}  // namespace atl::weights
