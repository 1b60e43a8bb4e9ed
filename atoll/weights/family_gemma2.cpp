// Gemma 2 (Gemma team 2024, section 2): norms before and behind each part, capped scores and
// logits, windows in every other layer, a scaled embedding.
#include "atoll/weights/family_gemma.h"

namespace atl::weights {
namespace {

constexpr Gated kGemma2 = {.design = {.norm = NormKind::kRmsFromOne,
                                      .norm_place = NormPlace::kAround,
                                      .mlp = MlpKind::kGatedByGelu,
                                      .scales_embedding = true},
                           .limits = {.has_whole_score_divisor = true},
                           .activation_key = "hidden_activation",
                           .usual_kv_heads = 4,
                           .usual_head_dim = 256,
                           .usually_ties = true,
                           .usual_interval = 2};

void gemma2_keys(HfKeys& keys, ModelConfig& config) {
  gated_keys(kGemma2, keys, config);
  gemma_keys({.attention_softcap = 50, .logits_softcap = 30}, keys, config);
}

}  // namespace

Family gemma2() {
  Family family = gated_family<kGemma2>("gemma2", "Gemma2ForCausalLM", gemma_settings());
  family.keys = gemma2_keys;
  return family;
}

}  // namespace atl::weights
