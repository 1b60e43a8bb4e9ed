#pragma once
// What the families after Llama share: RMSNorm, grouped-query attention whose queries and keys
// turn, SwiGLU. Each is one of them by what it says in a Gated.
#include <cstdint>
#include <vector>

#include "atoll/weights/families.h"

namespace atl::weights {

struct Gated {
  LayerDesign design = {};
  bool has_qkv_bias = false;  // Whatever `attention_bias` says.
  /// What config.json stands for where a key is absent. 0: as many as heads, hidden / heads.
  int64_t usual_kv_heads = 0;
  int64_t usual_head_dim = 0;
  double usual_norm_eps = 1e-6;
};

std::vector<ParameterSpec> gated_tensors(const Gated& gated, const ModelConfig& config);
void gated_keys(const Gated& gated, HfKeys& keys, ModelConfig& config);

/// A family of that kind: tensors and keys follow from `kGated`.
template <const Gated& kGated>
Family gated_family(std::string_view name, std::string_view hf_class,
                    std::vector<std::string_view> settings) {
  settings.insert(settings.end(), {"num_kv_heads", "head_dim"});
  return {.name = name,
          .hf_class = hf_class,
          .prefix = "model.",
          .settings = std::move(settings),
          .design = kGated.design,
          .tensors = [](const ModelConfig& config) { return gated_tensors(kGated, config); },
          .keys = [](HfKeys& keys, ModelConfig& config) { gated_keys(kGated, keys, config); }};
}

}  // namespace atl::weights
