#pragma once
// /v1/completions: texts that are continued. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/openai/answer.h"
#include "atoll/openai/prompt.h"
#include "atoll/openai/request_options.h"

namespace atl::openai {

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;
  RequestOptions options;
  std::optional<int64_t> logprobs;  // Scores, with so many of the likeliest.
  bool echo = false;                // The answer begins with the prompt.
};

/// Throws ApiError.
CompletionRequest read_completion(const Json& body, const RequestLimits& limits);

class CompletionShape final : public Shape {
 public:
  /// `tokenizer` must outlive it.
  CompletionShape(const CompletionRequest& request, const tokenizer::Tokenizer& tokenizer)
      : has_logprobs_(request.logprobs.has_value()),
        includes_usage_(request.options.include_usage),
        tokenizer_(tokenizer) {}

  Json whole(const Answer& answer) override;
  std::string begin(const Answer& answer) override;
  std::string piece(const Answer& answer, size_t choice, const Piece& piece) override;
  std::string end_of(const Answer& answer, size_t choice) override;
  std::string end(const Answer& answer) override;

 private:
  Json choice(size_t index, const std::string& text, const std::vector<TextToken>& tokens,
              std::optional<decoding::FinishReason> reason) const;
  Json object(const Answer& answer, Json choices) const;

  const bool has_logprobs_;
  const bool includes_usage_;
  const tokenizer::Tokenizer& tokenizer_;
};

}  // namespace atl::openai
