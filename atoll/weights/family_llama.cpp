// Llama 2 and 3 (Touvron et al. 2023).
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kLlama;

}  // namespace

Family llama() {
  return gated_family<kLlama>("llama", "LlamaForCausalLM", {"attention_bias", "mlp_bias"});
}

}  // namespace atl::weights
