// SmolLM3 (Hugging Face 2025): every fourth layer has no positions (Yang et al. 2025, section 2).
#include "atoll/weights/families.h"
#include "atoll/weights/family_gated.h"
#include "atoll/weights/hf_keys.h"

namespace atl::weights {
namespace {

constexpr Gated kSmolLm3 = {.usual_kv_heads = 4, .usual_theta = 2'000'000, .usually_ties = true};

void smollm3_keys(HfKeys& keys, ModelConfig& config) {
  gated_keys(kSmolLm3, keys, config);
  keys.only("use_sliding_window", false);
  keys.turning_layers("no_rope_layers", "no_rope_layer_interval", config);
}

}  // namespace

Family smollm3() {
  Family family = gated_family<kSmolLm3>("smollm3", "SmolLM3ForCausalLM",
                                         {"attention_bias", "mlp_bias", "layer_pattern"});
  family.keys = smollm3_keys;
  return family;
}

}  // namespace atl::weights
