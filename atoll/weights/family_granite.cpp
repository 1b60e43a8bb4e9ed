// Granite 3 (IBM 2024): Llama with factors of the embedding, of scores, of what is added to the
// residual stream, and of logits.
#include "atoll/weights/family_gated.h"
#include "atoll/weights/hf_keys.h"

namespace atl::weights {
namespace {

constexpr Gated kGranite = {};

void granite_keys(HfKeys& keys, ModelConfig& config) {
  gated_keys(kGranite, keys, config);
  keys.real("embedding_multiplier", config.embedding_multiplier, 1);
  keys.real("residual_multiplier", config.residual_multiplier, 1);
  if (keys.writes()) config.attention_multiplier = config.score_scale();
  keys.real("attention_multiplier", config.attention_multiplier, 1);
  keys.real("logits_scaling", config.logits_divisor, 1);
}

}  // namespace

Family granite() {
  Family family =
      gated_family<kGranite>("granite", "GraniteForCausalLM",
                             {"attention_bias", "mlp_bias", "embedding_multiplier",
                              "residual_multiplier", "attention_multiplier", "logits_divisor"});
  family.keys = granite_keys;
  return family;
}

}  // namespace atl::weights
