#pragma once
// What requests for text have in common: how tokens are drawn, where the text ends, how the answer
// comes. Pure.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/decoding/generator.h"
#include "atoll/openai/fields.h"

namespace atl::openai {

/// How much one request may ask for.
struct RequestLimits {
  int64_t max_choices = 32;  // Prompts times n.
  int64_t max_stops = 16;
  int64_t max_stop_bytes = 1024;
  int64_t max_top_logprobs = 20;
  int64_t max_inputs = 256;  // Texts of one request for embeddings.
};

struct RequestOptions {
  decoding::SamplerOptions sampler;
  std::optional<int64_t> seed;
  std::map<int64_t, float> logit_bias;
  std::vector<std::string> stops;
  std::optional<int64_t> max_tokens;
  int64_t n = 1;
  bool stream = false;
  bool include_usage = false;
  std::optional<double> lossy_kv;  // Seconds; infinity: never.
};

/// Reads the fields that completions and chats share, but for max_tokens.
RequestOptions read_options(Fields& fields, const RequestLimits& limits);

/// temperature, top_p, top_k, min_p, repetition_penalty, frequency_penalty, presence_penalty.
decoding::SamplerOptions read_sampler(Fields& fields);

/// Seconds after which what is kept of a prompt may come rounded, or false.
std::optional<double> read_lossy_kv(Fields& fields);

/// A list of ids. Throws ApiError naming `where`.
std::vector<int64_t> read_ids(const Json& json, const std::string& where);

/// More than any context; what is above is refused where the model is known.
inline constexpr int64_t kMaxTokens = int64_t{1} << 31;

}  // namespace atl::openai
