#pragma once
// /v1/responses: OpenAI's newer way to ask for an answer; texts and tools, and nothing is stored.
// Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/openai/request_options.h"
#include "atoll/openai/structure.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::openai {

struct ResponseRequest {
  std::string model;
  tokenizer::Chat chat;
  RequestOptions options;
  Structure structure;
  // As they came, for the answer to repeat:
  Json format{{"type", "text"}};
  Json tools = Json::array();
  Json tool_choice = "auto";
  std::optional<std::string> instructions;
  std::optional<int64_t> top_logprobs;  // Scores are wanted, with so many of the likeliest.
  Json metadata = Json::object();       // Given back as it came.
};

/// Throws ApiError.
ResponseRequest read_response(const Json& body, const RequestLimits& limits);

}  // namespace atl::openai
