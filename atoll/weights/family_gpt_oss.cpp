// gpt-oss (OpenAI 2025): experts with biases, a gate that is clamped, a score for each head that no
// key has, windows in every other layer. Its files may hold experts in MXFP4 (packed_experts.h).
#include "atoll/weights/family_gated.h"
#include "atoll/weights/hf_keys.h"

namespace atl::weights {
namespace {

constexpr Gated kGptOss = {.design = {.mlp = MlpKind::kGatedClamped, .has_sinks = true},
                           .usual_kv_heads = 8,
                           .usual_head_dim = 64,
                           .usual_norm_eps = 1e-5,
                           .usual_theta = 150'000,
                           .usual_interval = 2,
                           .usually_has_attention_bias = true,
                           .experts = {.router = "mlp.router",
                                       .prefix = "mlp.experts.",
                                       .are_one_tensor = true,
                                       .count_key = "num_local_experts",
                                       .other_count_key = "num_experts"}};

void gpt_oss_keys(HfKeys& keys, ModelConfig& config) {
  gated_keys(kGptOss, keys, config);
  keys.only("swiglu_alpha", 1.702);
  keys.only("swiglu_limit", 7.0);
}

}  // namespace

Family gpt_oss() {
  Family family = gated_family<kGptOss>("gpt_oss", "GptOssForCausalLM",
                                        {"attention_bias", "sliding_window", "layer_pattern"});
  family.usual_window = 128;
  family.quantised = "mxfp4";
  family.keys = gpt_oss_keys;
  return family;
}

}  // namespace atl::weights
