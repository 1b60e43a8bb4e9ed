#pragma once
// /v1/chat/completions: conversations that are continued. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/openai/choices_shape.h"
#include "atoll/openai/request_options.h"
#include "atoll/openai/structure.h"
#include "atoll/openai/tool_deltas.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::openai {

struct ChatRequest {
  std::string model;
  tokenizer::Chat chat;
  RequestOptions options;
  Structure structure;
  std::optional<int64_t> top_logprobs;  // Scores are wanted, with so many of the likeliest.
};

/// Throws ApiError.
ChatRequest read_chat(const Json& body, const RequestLimits& limits);

/// A list of messages as templates know them: each has a role and a text. Parts of texts are
/// joined by line ends; others than texts are refused. `field` begins names in messages.
Json read_messages(const Json& list, const std::string& field);

class ChatShape final : public ChoicesShape {
 public:
  /// `tools`: how the answer calls tools, where it may. `tokenizer` must outlive it.
  ChatShape(const ChatRequest& request, std::optional<grammar::ToolForm> tools,
            const tokenizer::Tokenizer& tokenizer)
      : ChoicesShape("chat.completion.chunk", request.top_logprobs.has_value(),
                     request.options.include_usage, tokenizer),
        tools_(tools) {}

  Json whole(const Answer& answer) override;
  std::string begin(const Answer& answer) override;
  std::string piece(const Answer& answer, size_t choice, const Piece& piece) override;
  std::string end_of(const Answer& answer, size_t choice) override;

 private:
  std::string event(const Answer& answer, size_t index, Json delta,
                    const std::vector<TextToken>& tokens, Json reason) const;
  std::string events(const Answer& answer, size_t index, std::vector<Json> deltas,
                     std::vector<TextToken> tokens) const;
  Json logprobs(const std::vector<TextToken>& tokens) const;

  const std::optional<grammar::ToolForm> tools_;
  std::vector<ToolDeltas> deltas_;  // Of each choice, where it may call tools.
};

}  // namespace atl::openai
