#pragma once
// The mathematics of the model families, each in its own file. A decoder uses the weights of a
// Parameters that outlives it, and is called by one thread.
//
// Shapes: B = rows, T = tokens per row, C = hidden size.
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "atoll/model/config.h"
#include "atoll/model/kv_cache.h"
#include "atoll/model/parameters.h"

namespace atl::model {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// The hidden states after the final norm. With `cached` the tokens follow those in its caches,
  /// and their keys and values are written there (KvCache::advance() is the caller's). Several rows
  /// lie one behind the other in a batch of one, so that rows of different lengths need no padding.
  virtual at::Tensor hidden_BTC(const at::Tensor& tokens_BT,
                                std::span<const CachedRow> cached) const = 0;
  /// The matrix (V, C) that turns hidden states into logits.
  virtual const Weight& head_VC() const = 0;
};

/// Llama, Mistral, Qwen 2 and 3: norms before each part. Touvron et al. 2023; Jiang et al. 2023
/// (sliding window); Qwen team 2024 (biases) and 2025 (norms of query and key heads).
std::unique_ptr<const Decoder> make_llama(const ModelConfig& config, const Parameters& parameters);
/// Norms behind each part, and over all queries and all keys. OLMo team 2024, section 3.1.
std::unique_ptr<const Decoder> make_olmo2(const ModelConfig& config, const Parameters& parameters);
/// GPT-NeoX and Pythia. Black et al. 2022, section 2.1; Biderman et al. 2023.
std::unique_ptr<const Decoder> make_gpt_neox(const ModelConfig& config,
                                             const Parameters& parameters);

}  // namespace atl::model
