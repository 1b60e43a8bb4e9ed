#include <fmt/format.h>

#include "atoll/weights/config.h"
#include "atoll/weights/config_limits.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

std::string of_families(const char* what, const char* setting) {
  return fmt::format("{} ({})", what, family_names(setting));
}

/// Those that came later than runs and sweeps that are kept: there they have no name.
void visit_later_settings(ModelConfig& config, SettingList& list) {
  const ModelConfig usual;
  const auto add = [&](const char* key, auto& value, const auto& standard, std::string help) {
    list.add(key, value, std::move(help));
    list.unsaid_if(value == standard);
  };
  add("layer_pattern", config.layer_pattern, usual.layer_pattern,
      of_families("kinds of layers, again and again: s window, f none, n none and no positions",
                  "layer_pattern"));
  add("rope_local_theta", config.rope_local_theta, usual.rope_local_theta,
      of_families("base of the rotary positions in layers with a window; 0 = rope_theta",
                  "rope_local_theta"));
  add("rope_beta_fast", config.rope_beta_fast, usual.rope_beta_fast,
      "yarn: waves that turn more often than this in rope_original_positions are not stretched");
  add("rope_beta_slow", config.rope_beta_slow, usual.rope_beta_slow,
      "yarn: waves that turn less often than this are stretched whole");
  add("rope_whole_pairs", config.rope_whole_pairs, usual.rope_whole_pairs,
      "yarn: those bounds are rounded to whole pairs");
  add("rope_attention_factor", config.rope_attention_factor, usual.rope_attention_factor,
      "yarn, longrope: factor of queries and keys; 0 = what follows from rope_factor");
  add("rope_short_factors", config.rope_short_factors, usual.rope_short_factors,
      "longrope: by how much each pair is slowed, a list with commas");
  add("rope_long_factors", config.rope_long_factors, usual.rope_long_factors,
      "longrope: the same in texts over rope_original_positions");
  add("clip_qkv", config.clip_qkv, usual.clip_qkv,
      of_families("largest magnitude in queries, keys and values; 0 = any", "clip_qkv"));
  add("embedding_multiplier", config.embedding_multiplier, usual.embedding_multiplier,
      of_families("factor of the embedding", "embedding_multiplier"));
  add("residual_multiplier", config.residual_multiplier, usual.residual_multiplier,
      of_families("factor of what a part adds to the residual stream", "residual_multiplier"));
  add("attention_multiplier", config.attention_multiplier, usual.attention_multiplier,
      of_families("factor of the scores; 0 = 1 / sqrt(head size)", "attention_multiplier"));
  add("logits_divisor", config.logits_divisor, usual.logits_divisor,
      of_families("what logits are divided by", "logits_divisor"));
  add("attention_softcap", config.attention_softcap, usual.attention_softcap,
      of_families("scores become cap tanh(score / cap); 0 = they stay", "attention_softcap"));
  add("logits_softcap", config.logits_softcap, usual.logits_softcap,
      of_families("logits become cap tanh(logit / cap); 0 = they stay", "logits_softcap"));
  add("num_experts", config.num_experts, usual.num_experts,
      of_families("experts in each layer, in place of its MLP", "num_experts"));
  add("experts_per_token", config.experts_per_token, usual.experts_per_token,
      of_families("how many of them read a token", "experts_per_token"));
  add("router_normalises", config.router_normalises, usual.router_normalises,
      of_families("the weights of a token's experts add up to 1", "router_normalises"));
  add("router_aux_loss", config.router_aux_loss, usual.router_aux_loss,
      of_families("training: weight of the loss that balances experts", "router_aux_loss"));
}

}  // namespace

void ModelConfig::visit(SettingList& list) {
  list.section("model", "the transformer");
  list.add("architecture", architecture, family_names());
  list.add("vocab_size", vocab_size, "rows of the embedding; 0 = the tokenizer's",
           {.min = 0, .max = kMaxSize});
  list.add("hidden_size", hidden_size, "width of the residual stream",
           {.min = 1, .max = kMaxHidden});
  list.add("intermediate_size", intermediate_size, "width inside the MLP",
           {.min = 1, .max = kMaxSize});
  list.add("num_layers", num_layers, "transformer layers", {.min = 1, .max = kMaxLayers});
  list.add("num_heads", num_heads, "query heads", {.min = 1, .max = kMaxHeads});
  list.add("num_kv_heads", num_kv_heads, "key and value heads; divides num_heads",
           {.min = 1, .max = kMaxHeads});
  list.add("head_dim", head_dim, "size of a head, even; 0 = hidden_size / num_heads",
           {.min = 0, .max = kMaxHeads});
  list.add("max_positions", max_positions, "longest context", {.min = 1, .max = kMaxSize});
  list.add("rope_theta", rope_theta, "base of the rotary positions", {.min = 1, .max = 1e12});
  list.add("rope_type", rope_type,
           "how positions are stretched: default (not), linear, dynamic, llama3, yarn, longrope");
  list.add("rope_factor", rope_factor, "by how much", {.min = 1, .max = kMaxRopeFactor});
  list.add("rope_low_freq_factor", rope_low_freq_factor,
           "llama3: waves longer than rope_original_positions / this are stretched",
           {.min = 0, .max = kMaxRopeFactor});
  list.add("rope_high_freq_factor", rope_high_freq_factor,
           "llama3: waves shorter than rope_original_positions / this are not",
           {.min = 0, .max = kMaxRopeFactor});
  list.add("rope_original_positions", rope_original_positions,
           "llama3, yarn, longrope: the longest context before stretching",
           {.min = 0, .max = kMaxSize});
  list.add("partial_rotary_factor", partial_rotary_factor,
           of_families("share of each head that turns with the position", "partial_rotary_factor"),
           {.min = 0, .max = 1});
  list.add("sliding_window", sliding_window,
           of_families("positions that a query sees, its own included; 0 = all", "sliding_window"),
           {.min = 0, .max = kMaxSize});
  list.add("full_layers", full_layers,
           of_families("first layers, which have no window", "full_layers"),
           {.min = 0, .max = kMaxLayers});
  list.add("norm_eps", norm_eps, "epsilon of RMSNorm or LayerNorm", {.min = 0, .max = 1});
  list.add("tie_embeddings", tie_embeddings, "input and output embedding are one matrix");
  list.add("attention_bias", attention_bias,
           of_families("biases in attention, where they are a choice", "attention_bias"));
  list.add("mlp_bias", mlp_bias,
           of_families("biases in the MLP, where they are a choice", "mlp_bias"));
  list.add("parallel_residual", parallel_residual,
           of_families("attention and MLP read the same residual stream", "parallel_residual"));
  list.add("activation", activation, of_families("gelu or gelu_tanh, in the MLP", "activation"));
  visit_later_settings(*this, list);
}

}  // namespace atl::weights
