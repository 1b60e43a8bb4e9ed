// Qwen 3 with experts (Qwen team 2025) in every layer.
#include "atoll/weights/family_gated.h"
#include "atoll/weights/hf_keys.h"

namespace atl::weights {
namespace {

constexpr Gated kQwen3Moe = {
    .design = {.qk_norm = QkNorm::kPerHead},
    .usual_kv_heads = 4,
    .experts = {
        .router = "mlp.gate", .prefix = "mlp.experts.", .width_key = "moe_intermediate_size"}};

void qwen3_moe_keys(HfKeys& keys, ModelConfig& config) {
  gated_keys(kQwen3Moe, keys, config);
  // Layers with an MLP in place of experts; no published model has one.
  keys.only("decoder_sparse_step", int64_t{1});
  keys.no_list("mlp_only_layers");
}

}  // namespace

Family qwen3_moe() {
  Family family = gated_family<kQwen3Moe>("qwen3_moe", "Qwen3MoeForCausalLM",
                                          {"attention_bias", "router_normalises"});
  family.keys = qwen3_moe_keys;
  return family;
}

}  // namespace atl::weights
