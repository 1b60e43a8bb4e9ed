#pragma once
// /v1/completions: texts that are continued. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/openai/choices_shape.h"
#include "atoll/openai/prompt.h"
#include "atoll/openai/request_options.h"
#include "atoll/openai/structure.h"

namespace atl::openai {

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;
  RequestOptions options;
  Structure structure;
  std::optional<int64_t> logprobs;  // Scores, with so many of the likeliest.
  bool echo = false;                // The answer begins with the prompt.
};

/// Throws ApiError.
CompletionRequest read_completion(const Json& body, const RequestLimits& limits);

class CompletionShape final : public ChoicesShape {
 public:
  /// `tokenizer` must outlive it.
  CompletionShape(const CompletionRequest& request, const tokenizer::Tokenizer& tokenizer)
      : ChoicesShape(kKind, request.logprobs.has_value(), request.options.include_usage,
                     tokenizer) {}

  Json whole(const Answer& answer) override;
  std::string begin(const Answer& answer) override;
  std::string piece(const Answer& answer, size_t choice, const Piece& piece) override;
  std::string end_of(const Answer& answer, size_t choice) override;

 private:
  static constexpr const char* kKind = "text_completion";  // In a stream, too.

  Json choice(size_t index, const std::string& text, const std::vector<TextToken>& tokens,
              std::optional<decoding::FinishReason> reason) const;
};

}  // namespace atl::openai
