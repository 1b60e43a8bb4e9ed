#pragma once
// Prompts continued by one model on this machine, several at once. The caller's thread; the model
// is only read.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "atoll/decoding/generator.h"
#include "atoll/decoding/sampler.h"
#include "atoll/model/model.h"

namespace atl::serve {

struct GenerateOptions {
  int64_t max_tokens = 128;
  std::vector<int64_t> ends;         // A text ends before any of these tokens.
  decoding::SamplerOptions sampler;  // Row r draws with seed + r: as it would alone with that seed.
};

using decoding::FinishReason;

struct Generation {
  std::vector<int64_t> ids;  // Of the continuation, without the token that ends a text.
  FinishReason reason = FinishReason::kLength;
};

/// A text that is being continued.
struct Row {
  std::vector<int64_t> tokens;  // The prompt; then what was made too.
  model::KvCache* cache;        // Of one sequence; holds the first tokens of the prompt, or none.
};

/// Gets each new id at once: (row, id). False ends the row. May be empty.
using OnToken = std::function<bool(size_t, int64_t)>;

/// All rows in one pass over the weights per token, each with its own positions: no padding. Caches
/// grow. Throws InputError when a prompt is empty, fills the context, or holds ids over
/// the vocabulary.
std::vector<Generation> generate(const model::Model& model, std::span<Row> rows,
                                 const GenerateOptions& options, const OnToken& on_token);
/// The same for prompts, with caches of its own.
std::vector<Generation> generate(const model::Model& model,
                                 std::span<const std::vector<int64_t>> prompts,
                                 const GenerateOptions& options, const OnToken& on_token);

}  // namespace atl::serve
