#pragma once
// /v1/chat/completions: conversations that are continued. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/openai/choices_shape.h"
#include "atoll/openai/request_options.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::openai {

struct ChatRequest {
  std::string model;
  tokenizer::Chat chat;
  RequestOptions options;
  std::optional<int64_t> top_logprobs;  // Scores are wanted, with so many of the likeliest.
};

/// Throws ApiError.
ChatRequest read_chat(const Json& body, const RequestLimits& limits);

/// A list of messages as templates know them: each has a role and a text. Parts of texts are
/// joined by line ends; others than texts are refused. `field` begins names in messages.
Json read_messages(const Json& list, const std::string& field);

class ChatShape final : public ChoicesShape {
 public:
  /// `tokenizer` must outlive it.
  ChatShape(const ChatRequest& request, const tokenizer::Tokenizer& tokenizer)
      : ChoicesShape("chat.completion.chunk", request.top_logprobs.has_value(),
                     request.options.include_usage, tokenizer) {}

  Json whole(const Answer& answer) override;
  std::string begin(const Answer& answer) override;
  std::string piece(const Answer& answer, size_t choice, const Piece& piece) override;
  std::string end_of(const Answer& answer, size_t choice) override;

 private:
  std::string delta(const Answer& answer, size_t index, Json delta,
                    const std::vector<TextToken>& tokens,
                    std::optional<decoding::FinishReason> reason) const;
  Json logprobs(const std::vector<TextToken>& tokens) const;
};

}  // namespace atl::openai
