#include "atoll/openai/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/openai/logprobs.h"
#include "atoll/openai/tool_prompt.h"

namespace atl::openai {
namespace {

/// Of OpenAI's chat and responses: all are texts.
bool is_text_part(const Json& part) {
  if (!part.is_object() || !part.contains("type") || !part.contains("text")) return false;
  const Json& type = part["type"];
  return part["text"].is_string() &&
         (type == "text" || type == "input_text" || type == "output_text");
}

std::string joined_parts(const Json& parts, const std::string& field) {
  std::string text;
  for (const Json& part : parts) {
    if (!is_text_part(part)) refuse(field, fmt::format("'{}' has a part that is no text", field));
    if (!text.empty()) text += "\n";
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

}  // namespace

Json read_messages(const Json& list, const std::string& field) {
  if (!list.is_array() || list.empty()) {
    refuse(field, fmt::format("'{}' must be a list of messages, and not empty", field));
  }
  Json messages = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", field, i);
    Json message = list[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      refuse(name, fmt::format("'{}' must be an object with a text 'role'", name));
    }
    Json& content = message["content"];
    if (content.is_array()) content = joined_parts(content, name + ".content");
    const bool has_calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
    if (has_calls) {
      message["tool_calls"] = read_tool_calls(message["tool_calls"], name + ".tool_calls");
    }
    if (!content.is_string() && !(content.is_null() && has_calls)) {
      refuse(name + ".content",
             fmt::format("'{}.content' must be a text or a list of texts", name));
    }
    // What newer clients call a system's message. Templates know the old name.
    if (message["role"] == "developer") message["role"] = "system";
    messages.push_back(std::move(message));
  }
  return messages;
}

ChatRequest read_chat(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  ChatRequest request;
  request.model = fields.required_text("model");
  request.chat.messages = read_messages(fields.required("messages"), "messages");
  request.chat.add_generation_prompt = fields.flag("add_generation_prompt", true);
  if (const Json* more = fields.find("chat_template_kwargs")) {
    if (!more->is_object())
      refuse("chat_template_kwargs", "'chat_template_kwargs' must be an object");
    request.chat.more = *more;
  }
  request.options = read_options(fields, limits);
  const auto old_name = fields.whole("max_tokens", 1, kMaxTokens);
  const auto new_name = fields.whole("max_completion_tokens", 1, kMaxTokens);
  request.options.max_tokens = new_name ? new_name : old_name;
  const bool has_logprobs = fields.flag("logprobs", false);
  const auto top = fields.whole("top_logprobs", 0, limits.max_top_logprobs);
  if (top && !has_logprobs) refuse("top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
  if (has_logprobs) request.top_logprobs = top.value_or(0);
  request.structure = read_structure(fields);
  request.chat.tools = request.structure.described;
  fields.refuse_if_there("modalities", {Json::array({"text"})});
  for (const char* name :
       {"audio", "prediction", "web_search_options", "reasoning_effort", "verbosity"}) {
    fields.refuse_if_there(name);
  }
  fields.refuse_if_there("store", {false});
  fields.pass_over({"prompt_cache_retention"});
  fields.refuse_unknown();
  return request;
}

Json ChatShape::logprobs(const std::vector<TextToken>& tokens) const {
  if (!has_logprobs()) return {};
  return {{"content", chat_logprobs(tokens, tokenizer())}, {"refusal", nullptr}};
}

Json ChatShape::whole(const Answer& answer) {
  Json choices = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& one = answer.choices[i];
    const grammar::ToolAnswer said =
        tools_ ? grammar::read_tool_answer(one.text, *tools_) : grammar::ToolAnswer{one.text, {}};
    choices.push_back(
        {{"index", i},
         {"message", message_with_calls(answer, i, said)},
         {"logprobs", logprobs(one.tokens)},
         {"finish_reason",
          one.reason ? Json(finish_name(*one.reason, !said.calls.empty())) : Json()}});
  }
  Json all = object(answer, "chat.completion", std::move(choices));
  all["usage"] = usage_of(answer);
  return all;
}

std::string ChatShape::event(const Answer& answer, size_t index, Json delta,
                             const std::vector<TextToken>& tokens, Json reason) const {
  return chunk(answer, {{"index", index},
                        {"delta", std::move(delta)},
                        {"logprobs", tokens.empty() ? Json() : logprobs(tokens)},
                        {"finish_reason", std::move(reason)}});
}

std::string ChatShape::events(const Answer& answer, size_t index, std::vector<Json> deltas,
                              std::vector<TextToken> tokens) const {
  std::string all;
  for (Json& delta : deltas) {
    all += event(answer, index, std::move(delta), std::exchange(tokens, {}), {});
  }
  return all;
}

std::string ChatShape::begin(const Answer& answer) {
  std::string all;
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    if (tools_) deltas_.emplace_back(*tools_);
    const Json content = tools_ ? Json() : Json("");
    all += event(answer, i, {{"role", "assistant"}, {"content", content}}, {}, {});
  }
  return all;
}

std::string ChatShape::piece(const Answer& answer, size_t index, const Piece& piece) {
  if (is_empty(piece)) return "";
  if (!tools_) return event(answer, index, {{"content", piece.text}}, piece.tokens, {});
  std::vector<Json> deltas = deltas_[index].add(answer, index, piece.text);
  if (deltas.empty() && has_logprobs() && !piece.tokens.empty()) deltas = {Json::object()};
  return events(answer, index, std::move(deltas), piece.tokens);
}

std::string ChatShape::end_of(const Answer& answer, size_t index) {
  const decoding::FinishReason reason = *answer.choices[index].reason;
  if (!tools_) return event(answer, index, Json::object(), {}, decoding::name_of(reason));
  ToolDeltas& mine = deltas_[index];
  std::string all = events(answer, index, mine.finish(answer, index), {});
  return all + event(answer, index, Json::object(), {}, finish_name(reason, mine.has_calls()));
}

}  // namespace atl::openai
