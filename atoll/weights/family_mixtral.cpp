// Mixtral (Jiang et al. 2024): Mistral with experts in place of each MLP.
#include "atoll/weights/family_gated.h"
#include "atoll/weights/hf_keys.h"

namespace atl::weights {
namespace {

constexpr Gated kMixtral = {.usual_kv_heads = 8,
                            .usual_norm_eps = 1e-5,
                            .usual_theta = 1'000'000,
                            .experts = {.router = "block_sparse_moe.gate",
                                        .prefix = "block_sparse_moe.experts.",
                                        .gate = "w1",
                                        .up = "w3",
                                        .down = "w2",
                                        .count_key = "num_local_experts",
                                        .other_count_key = "num_experts"}};

void mixtral_keys(HfKeys& keys, ModelConfig& config) {
  gated_keys(kMixtral, keys, config);
  keys.no_dropout("router_jitter_noise");
}

}  // namespace

Family mixtral() {
  Family family = gated_family<kMixtral>("mixtral", "MixtralForCausalLM", {"sliding_window"});
  family.usual_window = 0;
  family.keys = mixtral_keys;
  return family;
}

}  // namespace atl::weights
