#pragma once
// /v1/responses: OpenAI's newer way to ask for an answer; texts alone, and nothing is stored. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/openai/answer.h"
#include "atoll/openai/request_options.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::openai {

struct ResponseRequest {
  std::string model;
  tokenizer::Chat chat;
  RequestOptions options;
  std::optional<std::string> instructions;
  std::optional<int64_t> top_logprobs;  // Scores are wanted, with so many of the likeliest.
  Json metadata = Json::object();       // Given back as it came.
};

/// Throws ApiError.
ResponseRequest read_response(const Json& body, const RequestLimits& limits);

class ResponseShape final : public Shape {
 public:
  /// `tokenizer` must outlive it.
  ResponseShape(ResponseRequest request, const tokenizer::Tokenizer& tokenizer)
      : request_(std::move(request)), tokenizer_(tokenizer) {}

  Json whole(const Answer& answer) override;
  std::string begin(const Answer& answer) override;
  std::string piece(const Answer& answer, size_t choice, const Piece& piece) override;
  std::string end_of(const Answer& answer, size_t choice) override;
  std::string end(const Answer& answer) override;
  std::string failed(const Answer& answer, const ApiError& error) override;

 private:
  Json object(const Answer& answer, const char* status, Json output) const;
  Json message(const Answer& answer, const char* status, Json content) const;
  Json text_part(const std::string& text, const std::vector<TextToken>& tokens) const;
  /// Where in the response a text is; the fields that all its events have.
  static Json place(const Answer& answer);
  Json scores(const std::vector<TextToken>& tokens) const;
  std::string event(const std::string& kind, Json fields);

  const ResponseRequest request_;
  const tokenizer::Tokenizer& tokenizer_;
  int64_t num_events_ = 0;
  std::vector<TextToken> tokens_;  // Of a stream, whose last events have them all.
};

}  // namespace atl::openai
