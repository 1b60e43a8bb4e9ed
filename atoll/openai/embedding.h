#pragma once
// /v1/embeddings: the mean of a model's last hidden states over each text.
#include <functional>
#include <string>
#include <vector>

#include "atoll/openai/prompt.h"
#include "atoll/openai/request_options.h"
#include "atoll/openai/served_model.h"

namespace atl::openai {

struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool is_base64 = false;  // Little-endian float32s, in place of a list of numbers.
};

/// Throws ApiError.
EmbeddingRequest read_embedding(const Json& body, const RequestLimits& limits);
Json embedding_reply(const EmbeddingRequest& request, const std::vector<std::vector<float>>& found,
                     int64_t num_tokens);

/// Asks the model and waits. Empty when `has_gone`. Throws ApiError.
std::vector<std::vector<float>> embed(const ServedModel& model, const std::vector<PromptIds>& texts,
                                      uint64_t tenant, const std::function<bool()>& has_gone);

}  // namespace atl::openai
