// Qwen 3 (Qwen team 2025): norms of query and key heads.
#include "atoll/weights/family_gated.h"

namespace atl::weights {
namespace {

constexpr Gated kQwen3 = {
    .design = {.qk_norm = QkNorm::kPerHead}, .usual_kv_heads = 32, .usual_head_dim = 128};

}  // namespace

Family qwen3() {
  return gated_family<kQwen3>("qwen3", "Qwen3ForCausalLM",
                              {"attention_bias", "sliding_window", "full_layers"});
}

}  // namespace atl::weights
