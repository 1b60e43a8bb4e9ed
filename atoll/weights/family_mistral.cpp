// Mistral (Jiang et al. 2023): a sliding window in all layers.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kMistral = {.usual_kv_heads = 8};

}  // namespace

Family mistral() {
  return gated_family<kMistral>("mistral", "MistralForCausalLM", {"sliding_window"});
}

}  // namespace atl::weights
