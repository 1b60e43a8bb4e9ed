#pragma once
// The mathematics of the model families, each in its own file. A decoder uses the weights of a
// Parameters that outlives it, and is called by one thread.
//
// Shapes: B = rows, T = tokens per row, C = hidden size.
#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>

#include "atoll/model/attention.h"
#include "atoll/model/kv_cache.h"
#include "atoll/model/parameters.h"
#include "atoll/weights/config.h"

namespace atl::model {

class Decoder {
 public:
  /// `embedding` and `head` name matrices (V, C); a tied model has no head of its own.
  Decoder(const weights::ModelConfig& config, const Parameters& parameters, const char* embedding,
          const char* head)
      : config_(config),
        attention_(config, parameters.values_P().device()),
        embedding_(parameters.weight(embedding)),
        head_(config.tie_embeddings ? embedding_ : parameters.weight(head)) {}
  virtual ~Decoder() = default;
  /// The hidden states after the final norm. With `cached` the tokens follow those in its caches,
  /// and their keys and values are written there (KvCache::advance() is the caller's). Several rows
  /// lie one behind the other in a batch of one, so that rows of different lengths need no padding.
  virtual at::Tensor hidden_BTC(const at::Tensor& tokens_BT,
                                std::span<const CachedRow> cached) const = 0;
  /// The matrix (V, C) that turns hidden states into logits.
  const Weight& head_VC() const { return head_; }

 protected:
  weights::ModelConfig config_;
  Attention attention_;
  Weight embedding_;

 private:
  Weight head_;
};

/// The parameters under one prefix, such as one layer's, by what follows it.
class ParameterScope {
 public:
  ParameterScope(const Parameters& parameters, std::string prefix)
      : parameters_(parameters), prefix_(std::move(prefix)) {}
  Weight weight(const char* name) const { return parameters_.weight(prefix_ + name + ".weight"); }
  /// See Parameters::projection().
  Projection projection(const char* first, const char* last, bool has_bias) const {
    return parameters_.projection(prefix_ + first, prefix_ + last, has_bias);
  }
  Projection projection(const char* name, bool has_bias) const {
    return projection(name, name, has_bias);
  }

 private:
  const Parameters& parameters_;
  std::string prefix_;
};

/// Llama, Mistral, Qwen 2 and 3: norms before each part. Touvron et al. 2023; Jiang et al. 2023
/// (sliding window); Qwen team 2024 (biases) and 2025 (norms of query and key heads).
std::unique_ptr<const Decoder> make_llama(const weights::ModelConfig& config,
                                          const Parameters& parameters);
/// Norms behind each part, and over all queries and all keys. OLMo team 2024, section 3.1.
std::unique_ptr<const Decoder> make_olmo2(const weights::ModelConfig& config,
                                          const Parameters& parameters);
/// GPT-NeoX and Pythia. Black et al. 2022, section 2.1; Biderman et al. 2023.
std::unique_ptr<const Decoder> make_gpt_neox(const weights::ModelConfig& config,
                                             const Parameters& parameters);

}  // namespace atl::model
