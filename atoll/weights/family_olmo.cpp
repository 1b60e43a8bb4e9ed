// OLMo 1 (Groeneveld et al. 2024, section 2.1): LayerNorm without weights, and queries, keys and
// values may be clipped.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kOlmo = {.design = {.norm = NormKind::kLayerWithoutAny},
                         .limits = {.norm_eps = 1e-5}};

}  // namespace

Family olmo() {
  return gated_family<kOlmo>("olmo", "OlmoForCausalLM", {"attention_bias", "clip_qkv"});
}

}  // namespace atl::weights
