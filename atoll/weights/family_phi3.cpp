// Phi-3 and Phi-4 (Abdin et al. 2024): queries, keys and values in one tensor, gate and up in one.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kPhi3 = {
    .limits = {.has_few_stretches = true}, .has_joined_matrices = true, .usual_norm_eps = 1e-5};

}  // namespace

Family phi3() {
  Family family =
      gated_family<kPhi3>("phi3", "Phi3ForCausalLM", {"sliding_window", "partial_rotary_factor"});
  family.usual_window = 0;
  return family;
}

}  // namespace atl::weights
