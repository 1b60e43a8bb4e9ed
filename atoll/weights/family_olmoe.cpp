// OLMoE (Muennighoff et al. 2024): many small experts; norms over all queries and all keys.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kOlmoe = {
    .design = {.qk_norm = QkNorm::kWhole},
    .usual_norm_eps = 1e-5,
    .experts = {.router = "mlp.gate", .prefix = "mlp.experts.", .usual_aux_loss = 0.01}};

}  // namespace

Family olmoe() {
  return gated_family<kOlmoe>("olmoe", "OlmoeForCausalLM",
                              {"attention_bias", "clip_qkv", "router_normalises"});
}

}  // namespace atl::weights
