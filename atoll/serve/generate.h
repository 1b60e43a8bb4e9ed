#pragma once
// Prompts continued by one model on this machine, by the engine that answers a server's requests:
// several at once, what they have in common read once, guesses verified. The caller's thread; the
// model is only read.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "atoll/decoding/generator.h"
#include "atoll/decoding/sampler.h"
#include "atoll/model/model.h"
#include "atoll/serve/engine.h"

namespace atl::serve {

struct GenerateOptions {
  int64_t max_tokens = 128;
  std::vector<int64_t> ends;         // A text ends before any of these tokens.
  decoding::SamplerOptions sampler;  // Row r draws with seed + r: as it would alone with that seed.
  int64_t max_guesses = EngineOptions().max_guesses;
};

using decoding::FinishReason;

struct Generation {
  std::vector<int64_t> ids;  // Of the continuation, without the token that ends a text.
  FinishReason reason = FinishReason::kLength;
  int64_t num_cached = 0;  // Of the prompt's tokens: that were there, and were not read.
};

/// What is heard of the rows while they grow; each may be empty.
struct Hearing {
  std::function<bool(size_t row, int64_t id)> token;  // False ends the row.
  std::function<void(size_t row)> ended;
};

/// For that many prompts at once, each a text of so many tokens in the end: there is room for all
/// of them, but no more.
EngineOptions engine_options(const model::Model& model, std::span<const int64_t> lengths,
                             int64_t max_guesses);

/// A row for each prompt; some of them at once. The engine has nothing else to do; what it has read
/// before is not read again. Throws InputError when a prompt is empty, fills the context, or holds
/// ids over the vocabulary; then the engine has nothing to do any more.
std::vector<Generation> generate(Engine& engine, std::span<const std::vector<int64_t>> prompts,
                                 const GenerateOptions& options, const Hearing& hearing);
/// The same by an engine of its own.
std::vector<Generation> generate(const model::Model& model,
                                 std::span<const std::vector<int64_t>> prompts,
                                 const GenerateOptions& options, const Hearing& hearing);

}  // namespace atl::serve
