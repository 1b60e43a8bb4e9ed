#pragma once
// An answer as /v1/responses has it: a list of items, a message and calls of tools. Pure.
#include <optional>
#include <string>
#include <vector>

#include "atoll/grammar/tool_reader.h"
#include "atoll/openai/answer.h"
#include "atoll/openai/response.h"

namespace atl::openai {

class ResponseShape final : public Shape {
 public:
  /// `tools`: how the answer calls tools, where it may. `tokenizer` must outlive it.
  ResponseShape(ResponseRequest request, std::optional<grammar::ToolForm> tools,
                const tokenizer::Tokenizer& tokenizer)
      : request_(std::move(request)), tools_(tools), tokenizer_(tokenizer) {
    if (tools_) reader_.emplace(*tools_);
  }

  Json whole(const Answer& answer) override;
  std::string begin(const Answer& answer) override;
  std::string piece(const Answer& answer, size_t choice, const Piece& piece) override;
  std::string end_of(const Answer& answer, size_t choice) override;
  std::string end(const Answer& answer) override;
  std::string failed(const Answer& answer, const ApiError& error) override;

 private:
  Json object(const Answer& answer, const char* status, Json output) const;
  Json message(const Answer& answer, const char* status, Json content) const;
  Json call(const Answer& answer, size_t number, const char* status,
            const grammar::ToolCall& call) const;
  Json text_part(const std::string& text, const std::vector<TextToken>& tokens) const;
  Json scores(const std::vector<TextToken>& tokens) const;
  std::string event(const std::string& kind, Json fields);
  /// An event of the item that is open, which comes behind those that are done.
  std::string item_event(const std::string& kind, const Json& item_id, Json fields);
  /// The same of its text.
  std::string text_event(const std::string& kind, const Answer& answer, Json fields);

  std::string open_message(const Answer& answer);
  std::string open_call(const Answer& answer, const std::string& name);
  std::string add(const Answer& answer, const grammar::ToolEvent& said, const Piece& piece);
  std::string close(const Answer& answer, const char* status);

  const ResponseRequest request_;
  const std::optional<grammar::ToolForm> tools_;
  const tokenizer::Tokenizer& tokenizer_;
  int64_t num_events_ = 0;
  // Of a stream, whose last events have all of it once more:
  Json done_ = Json::array();  // Items.
  Json open_;                  // The item that grows; null: none.
  std::string text_;           // Of the message.
  std::vector<TextToken> tokens_;
  grammar::ToolCall call_;
  std::optional<grammar::ToolReader> reader_;
};

}  // namespace atl::openai
