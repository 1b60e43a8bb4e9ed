#pragma once
// Shapes of small models for tests: one, and one for each way of each family.
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::weights {

inline ModelConfig tiny() {
  return {.vocab_size = 11,
          .hidden_size = 8,
          .intermediate_size = 12,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .max_positions = 16};
}

/// Every family, with each of its settings.
inline std::vector<ModelConfig> varieties() {
  std::vector<ModelConfig> all;
  const auto add = [&](std::string architecture, const std::function<void(ModelConfig&)>& edit) {
    ModelConfig config = tiny();
    config.architecture = std::move(architecture);
    config.head_dim = 6;
    config.rope_theta = 5000;
    config.norm_eps = 1e-6;
    edit(config);
    all.push_back(config);
  };
  for (const bool tied : {true, false}) {
    for (const char* name : {"llama", "mistral", "qwen2", "qwen3", "olmo2"}) {
      add(name, [&](ModelConfig& c) { c.tie_embeddings = tied; });
    }
  }
  add("llama", [](ModelConfig& c) { c.attention_bias = c.mlp_bias = true; });
  add("llama", [](ModelConfig& c) { c.rope_type = "linear", c.rope_factor = 2.5; });
  add("mistral", [](ModelConfig& c) { c.rope_type = "dynamic", c.rope_factor = 4; });
  add("llama", [](ModelConfig& c) {
    c.rope_type = "llama3";
    c.rope_factor = 8;
    c.rope_low_freq_factor = 0.5;
    c.rope_high_freq_factor = 3;
    c.rope_original_positions = 9;
  });
  add("mistral", [](ModelConfig& c) { c.sliding_window = 5; });
  add("qwen2", [](ModelConfig& c) { c.sliding_window = 5, c.full_layers = 1; });
  add("qwen3", [](ModelConfig& c) { c.sliding_window = 5, c.attention_bias = true; });
  add("olmo2", [](ModelConfig& c) { c.attention_bias = true; });
  add("olmo", [](ModelConfig& c) { c.norm_eps = 1e-5; });
  add("olmo", [](ModelConfig& c) { c.norm_eps = 1e-5, c.clip_qkv = 8, c.attention_bias = true; });
  const auto stretch = [](ModelConfig& c) {
    c.rope_type = "yarn";
    c.rope_factor = 4;
    c.rope_original_positions = 9;
    c.rope_beta_fast = 16;
    c.rope_whole_pairs = false;
    c.rope_attention_factor = 1.25;
  };
  add("llama", stretch);
  add("olmo3", [&](ModelConfig& c) {
    stretch(c);
    c.rope_whole_pairs = true;
    c.sliding_window = 5;
    c.layer_pattern = "sf";
  });
  add("olmo3", [](ModelConfig& c) { c.tie_embeddings = false; });
  add("phi3",
      [](ModelConfig& c) { c.sliding_window = 5, c.head_dim = 8, c.partial_rotary_factor = 0.5; });
  add("phi3", [](ModelConfig& c) {
    c.rope_type = "longrope";
    c.rope_original_positions = 4;
    c.rope_factor = 4;
    c.rope_short_factors = "1,1.1,1.25";
    c.rope_long_factors = "1.5,2,3.75";
  });
  add("phi3", [](ModelConfig& c) { c.tie_embeddings = true; });
  add("smollm3", [](ModelConfig& c) { c.layer_pattern = "fn", c.mlp_bias = true; });
  add("smollm3", [](ModelConfig& c) { c.layer_pattern = "n"; });
  add("granite", [](ModelConfig& c) {
    c.embedding_multiplier = 12;
    c.residual_multiplier = 0.22;
    c.attention_multiplier = 0.0078125;
    c.logits_divisor = 8;
  });
  add("gemma2", [](ModelConfig& c) {
    c.sliding_window = 5;
    c.layer_pattern = "sf";
    c.attention_multiplier = 1 / std::sqrt(224.0);
    c.attention_softcap = 50;
    c.logits_softcap = 30;
  });
  add("gemma3_text", [](ModelConfig& c) {
    c.sliding_window = 5;
    c.layer_pattern = "fs";
    c.rope_local_theta = 500;
  });
  add("mixtral", [](ModelConfig& c) { c.num_experts = 3, c.sliding_window = 5; });
  add("olmoe", [](ModelConfig& c) {
    c.num_experts = 4;
    c.experts_per_token = 3;
    c.router_normalises = false;
    c.router_aux_loss = 0.01;
    c.clip_qkv = 8;
  });
  add("qwen3_moe", [](ModelConfig& c) { c.num_experts = 4, c.attention_bias = true; });
  add("gpt_oss", [](ModelConfig& c) {
    c.num_experts = 3;
    c.experts_per_token = 1;
    c.sliding_window = 5;
    c.layer_pattern = "sf";
    c.attention_bias = true;
  });
  for (const bool is_parallel : {true, false}) {
    add("gpt_neox", [&](ModelConfig& c) {
      c.num_kv_heads = c.num_heads;
      c.head_dim = 0;
      c.partial_rotary_factor = 0.5;
      c.parallel_residual = c.attention_bias = is_parallel;
      if (!is_parallel) c.activation = "gelu_tanh";
    });
  }
  for (const char* activation : {"gelu", "gelu_tanh"}) {
    add("gpt2", [&](ModelConfig& c) {
      c.num_kv_heads = c.num_heads;
      c.head_dim = 0;
      c.rope_theta = ModelConfig().rope_theta;
      c.activation = activation;
    });
  }
  return all;
}

}  // namespace atl::weights
