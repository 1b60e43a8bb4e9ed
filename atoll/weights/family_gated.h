#pragma once
// What the families after Llama share: one norm, grouped-query attention whose queries and keys
// turn, a gated MLP. Each is one of them by what it says in a Gated.
#include <cstdint>
#include <vector>

#include "atoll/weights/families.h"

namespace atl::weights {

/// How a family with experts names what is theirs.
struct Experts {
  const char* router = nullptr;  // Null: there are none.
  const char* prefix = nullptr;  // Of their names.
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  bool are_one_tensor = false;            // Gate and up in turn, of all experts.
  const char* count_key = "num_experts";  // Or, as transformers 5 writes some, the other one:
  const char* other_count_key = "num_local_experts";
  const char* width_key = "intermediate_size";
  double usual_aux_loss = 0.001;
};

struct Gated {
  LayerDesign design = {};
  FileLimits limits = {};
  bool has_qkv_bias = false;         // Whatever `attention_bias` says.
  bool has_joined_matrices = false;  // Queries, keys and values are one tensor; gate and up too.
  const char* activation_key = "hidden_act";
  /// What config.json stands for where a key is absent. 0: as many as heads, hidden / heads.
  int64_t usual_kv_heads = 0;
  int64_t usual_head_dim = 0;
  double usual_norm_eps = 1e-6;
  double usual_theta = 10'000;
  double usual_local_theta = 0;  // 0: that of the other layers.
  bool usually_ties = false;
  int64_t usual_interval = 0;  // Of so many layers the last one has no window.
  bool usually_has_attention_bias = false;
  Experts experts = {};
};

std::vector<ParameterSpec> gated_tensors(const Gated& gated, const ModelConfig& config);
void gated_keys(const Gated& gated, HfKeys& keys, ModelConfig& config);

/// A family of that kind: tensors and keys follow from `kGated`.
template <const Gated& kGated>
Family gated_family(std::string_view name, std::string_view hf_class,
                    std::vector<std::string_view> settings) {
  settings.insert(settings.end(), {"num_kv_heads", "head_dim"});
  if (kGated.experts.router != nullptr) {
    settings.insert(settings.end(), {"num_experts", "experts_per_token", "router_aux_loss"});
  }
  return {.name = name,
          .hf_class = hf_class,
          .prefix = "model.",
          .settings = std::move(settings),
          .usual_interval = kGated.usual_interval,
          .design = kGated.design,
          .limits = kGated.limits,
          .tensors = [](const ModelConfig& config) { return gated_tensors(kGated, config); },
          .keys = [](HfKeys& keys, ModelConfig& config) { gated_keys(kGated, keys, config); }};
}

}  // namespace atl::weights
