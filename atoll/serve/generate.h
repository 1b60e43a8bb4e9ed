#pragma once
// One prompt continued by one model on this machine. The caller's thread; the model is only read.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/model/model.h"
#include "atoll/serve/sampler.h"

namespace atl::serve {

struct GenerateOptions {
  int64_t max_tokens = 128;
  std::optional<int64_t> end_of_text;  // Generation ends before this token.
  SamplerOptions sampler;
};

enum class FinishReason {
  kStop,    // The model ended the text.
  kLength,  // max_tokens were made, or the context is full.
};
std::string name_of(FinishReason reason);  // "stop", "length", as OpenAI's API spells them.

struct Generation {
  std::vector<int64_t> ids;  // Of the continuation, without the end-of-text token.
  FinishReason reason = FinishReason::kLength;
};

/// `on_token` (may be empty) gets each new id at once. Throws InputError when the prompt is empty,
/// fills the context, or holds ids over the vocabulary.
Generation generate(const model::Model& model, std::span<const int64_t> prompt,
                    const GenerateOptions& options, const std::function<void(int64_t)>& on_token);

}  // namespace atl::serve
