// OLMo 3 (OLMo team 2025): OLMo 2 with windows in three of four layers, where positions are not
// stretched.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kOlmo3 = {.design = {.norm_place = NormPlace::kBehind,
                                     .qk_norm = QkNorm::kWhole,
                                     .windows_are_plain = true},
                          .usual_norm_eps = 1e-5,
                          .usual_theta = 500'000,
                          .usual_interval = 4};

}  // namespace

Family olmo3() {
  return gated_family<kOlmo3>("olmo3", "Olmo3ForCausalLM",
                              {"attention_bias", "sliding_window", "layer_pattern"});
}

}  // namespace atl::weights
