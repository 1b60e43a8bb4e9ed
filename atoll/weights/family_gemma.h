#pragma once
// What the Gemma families have over the others that family_gated.h describes.
#include <cmath>
#include <string_view>
#include <vector>

#include "atoll/weights/family_gated.h"
#include "atoll/weights/hf_keys.h"

namespace atl::weights {

/// What config.json stands for where a key is absent.
struct GemmaCaps {
  double attention_softcap = 0;
  double logits_softcap = 0;
};

inline std::vector<std::string_view> gemma_settings() {
  return {"attention_bias",       "sliding_window",    "layer_pattern",
          "attention_multiplier", "attention_softcap", "logits_softcap"};
}

inline void gemma_keys(const GemmaCaps& usual, HfKeys& keys, ModelConfig& config) {
  // Scores are divided by its root; check() has seen to it that it is whole.
  int64_t divisor = keys.writes() ? std::llround(config.score_divisor()) : 0;
  keys.integer("query_pre_attn_scalar", divisor, 256);
  if (!keys.writes()) config.attention_multiplier = 1 / std::sqrt(static_cast<double>(divisor));
  keys.real_or_none("attn_logit_softcapping", config.attention_softcap, usual.attention_softcap);
  keys.real_or_none("final_logit_softcapping", config.logits_softcap, usual.logits_softcap);
  keys.only("use_bidirectional_attention", false);
}

}  // namespace atl::weights
