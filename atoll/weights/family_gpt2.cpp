// GPT-2 (Radford et al. 2019): learned positions, LayerNorm before each role, biases everywhere.
// Its files hold matrices as (inputs, outputs), and queries, keys and values as one.
#include <fmt/format.h>

#include <cstdint>

#include "atoll/weights/families.h"
#include "atoll/weights/hf_keys.h"
#include "atoll/weights/tensor_list.h"

namespace atl::weights {
namespace {

std::vector<ParameterSpec> gpt2_tensors(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  TensorList list;
  const auto add_norm = [&](Role role, const char* name) {
    list.weight(role, name, {hidden});
    list.bias(role, name, hidden);
  };
  const auto add = [&](Role role, const char* name, int64_t inputs, int64_t outputs) {
    list.inputs_first_weight(role, name, {inputs, outputs});
    list.bias(role, name, outputs);
  };
  list.begin("transformer.");
  list.weight(Role::kEmbedding, "wte", {config.vocab_size, hidden});
  list.weight(Role::kPositions, "wpe", {config.max_positions, hidden});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    list.begin(fmt::format("transformer.h.{}.", layer), layer);
    add_norm(Role::kAttentionNorm, "ln_1");
    add(Role::kQueryKeyValue, "attn.c_attn", hidden, 3 * hidden);
    add(Role::kAttentionOutput, "attn.c_proj", hidden, hidden);
    add_norm(Role::kMlpNorm, "ln_2");
    add(Role::kMlpInput, "mlp.c_fc", hidden, inner);
    add(Role::kMlpOutput, "mlp.c_proj", inner, hidden);
  }
  list.begin("transformer.");
  add_norm(Role::kFinalNorm, "ln_f");
  list.begin("");
  list.weight(Role::kHead, "lm_head", {config.vocab_size, hidden});
  return list.take();
}

void gpt2_keys(HfKeys& keys, ModelConfig& config) {
  keys.integer("n_positions", config.max_positions, 1024);
  keys.integer("n_embd", config.hidden_size, 768);
  keys.integer("n_layer", config.num_layers, 12);
  keys.integer("n_head", config.num_heads, 12);
  // Unsigned, as a stranger's size may be anything: check() comes after this.
  const uint64_t usual_inner = 4 * static_cast<uint64_t>(config.hidden_size);
  keys.integer("n_inner", config.intermediate_size, static_cast<int64_t>(usual_inner));
  keys.activation("activation_function", config.activation, "gelu_new", "gelu_new");
  keys.real("layer_norm_epsilon", config.norm_eps, 1e-5);
  keys.flag("tie_word_embeddings", config.tie_embeddings, true);
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("reorder_and_upcast_attn", false);
  keys.only("add_cross_attention", false);
  // The published models name 0.1, which only their training had; ours has none.
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) keys.ignored_dropout(key);
}

}  // namespace

Family gpt2() {
  return {.name = "gpt2",
          .hf_class = "GPT2LMHeadModel",
          .prefix = "transformer.",
          .settings = {"activation"},
          .buffers = {".attn.bias", ".attn.masked_bias"},
          .design = {.norm = NormKind::kLayer,
                     .mlp = MlpKind::kPlain,
                     .positions = PositionKind::kLearned},
          .tensors = gpt2_tensors,
          .keys = gpt2_keys};
}

}  // namespace atl::weights
