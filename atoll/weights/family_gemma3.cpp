// Gemma 3 for text (Gemma team 2025, section 2): Gemma 2 with norms of query and key heads instead
// of caps, windows in five of six layers, whose positions have a base of their own.
#include "atoll/weights/family_gemma.h"

namespace atl::weights {
namespace {

constexpr Gated kGemma3 = {.design = {.norm = NormKind::kRmsFromOne,
                                      .norm_place = NormPlace::kAround,
                                      .qk_norm = QkNorm::kPerHead,
                                      .mlp = MlpKind::kGatedByGelu,
                                      .scales_embedding = true,
                                      .windows_are_plain = true},
                           .limits = {.has_whole_score_divisor = true},
                           .activation_key = "hidden_activation",
                           .usual_kv_heads = 4,
                           .usual_head_dim = 256,
                           .usual_theta = 1'000'000,
                           .usual_local_theta = 10'000,
                           .usually_ties = true,
                           .usual_interval = 6};

void gemma3_keys(HfKeys& keys, ModelConfig& config) {
  gated_keys(kGemma3, keys, config);
  gemma_keys({}, keys, config);
}

}  // namespace

Family gemma3() {
  Family family = gated_family<kGemma3>("gemma3_text", "Gemma3ForCausalLM", gemma_settings());
  family.settings.push_back("rope_local_theta");
  family.keys = gemma3_keys;
  return family;
}

}  // namespace atl::weights
