// GPT-NeoX (Black et al. 2022, section 2.1) and Pythia (Biderman et al. 2023): LayerNorm with
// biases, a role of each head turns, and attention and MLP may read the same residual stream.
#include <fmt/format.h>

#include "atoll/weights/families.h"
#include "atoll/weights/hf_keys.h"
#include "atoll/weights/tensor_list.h"

namespace atl::weights {
namespace {

std::vector<ParameterSpec> gpt_neox_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  TensorList list;
  const auto add = [&](Role role, const char* name, std::vector<int64_t> shape, bool has_bias) {
    const int64_t outputs = shape.front();
    list.weight(role, name, std::move(shape));
    if (has_bias) list.bias(role, name, outputs);
  };
  list.begin("gpt_neox.");
  add(Role::kEmbedding, "embed_in", {config.vocab_size, hidden}, false);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    list.begin(fmt::format("gpt_neox.layers.{}.", layer), layer);
    add(Role::kAttentionNorm, "input_layernorm", {hidden}, true);
    add(Role::kMlpNorm, "post_attention_layernorm", {hidden}, true);
    add(Role::kQueryKeyValue, "attention.query_key_value", {3 * hidden, hidden},
        config.attention_bias);
    add(Role::kAttentionOutput, "attention.dense", {hidden, hidden}, config.attention_bias);
    add(Role::kMlpInput, "mlp.dense_h_to_4h", {inner, hidden}, true);
    add(Role::kMlpOutput, "mlp.dense_4h_to_h", {hidden, inner}, true);
  }
  list.begin("gpt_neox.");
  add(Role::kFinalNorm, "final_layer_norm", {hidden}, true);
  list.begin("");
  add(Role::kHead, "embed_out", {config.vocab_size, hidden}, false);
  return list.take();
}

void gpt_neox_keys(HfKeys& keys, ModelConfig& config) {
  keys.integer("hidden_size", config.hidden_size);
  keys.integer("intermediate_size", config.intermediate_size);
  keys.integer("num_hidden_layers", config.num_layers);
  keys.integer("num_attention_heads", config.num_heads);
  keys.integer("max_position_embeddings", config.max_positions);
  keys.real("layer_norm_eps", config.norm_eps, 1e-5);
  keys.rotary(config, {.base = "rotary_emb_base",
                       .share = "rotary_pct",
                       .usual_share = 0.25,
                       .writes_share = true});
  keys.flag("tie_word_embeddings", config.tie_embeddings, false);
  keys.activation("hidden_act", config.activation, "gelu", "gelu_pytorch_tanh");
  keys.flag("attention_bias", config.attention_bias, true);
  keys.no_dropout("attention_dropout");
  keys.no_dropout("hidden_dropout");
  keys.flag("use_parallel_residual", config.parallel_residual, true);
}

}  // namespace

Family gpt_neox() {
  return {
      .name = "gpt_neox",
      .hf_class = "GPTNeoXForCausalLM",
      .prefix = "gpt_neox.",
      .settings = {"attention_bias", "partial_rotary_factor", "parallel_residual", "activation"},
      .buffers = {".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias"},
      .design = {.norm = NormKind::kLayer, .qkv_order = QkvOrder::kByHead, .mlp = MlpKind::kPlain},
      .tensors = gpt_neox_tensors,
      .keys = gpt_neox_keys};
}

}  // namespace atl::weights
