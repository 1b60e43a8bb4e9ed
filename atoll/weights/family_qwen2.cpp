// Qwen 2 and 2.5 (Qwen team 2024): biases of queries, keys and values.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kQwen2 = {.has_qkv_bias = true, .usual_kv_heads = 32};

}  // namespace

Family qwen2() {
  return gated_family<kQwen2>("qwen2", "Qwen2ForCausalLM", {"sliding_window", "full_layers"});
}

}  // namespace atl::weights
