#include "atoll/openai/response_shape.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/openai/logprobs.h"
#include "atoll/openai/tool_deltas.h"

namespace atl::openai {
namespace {

const char* status_of(const Answer& answer) {
  return answer.choices[0].reason == decoding::FinishReason::kLength ? "incomplete" : "completed";
}

/// What ids of an answer's items end with.
std::string name_in(const Answer& answer) { return answer.id.substr(answer.id.find('_') + 1); }

}  // namespace

Json ResponseShape::object(const Answer& answer, const char* status, Json output) const {
  const bool is_incomplete = std::string(status) == "incomplete";
  Json usage;
  if (answer.is_finished()) {
    Json cached = cached_of(answer);
    cached["cache_write_tokens"] = 0;
    usage = {{"input_tokens", answer.prompt_tokens},
             {"input_tokens_details", std::move(cached)},
             {"output_tokens", answer.made_tokens},
             {"output_tokens_details", {{"reasoning_tokens", 0}}},
             {"total_tokens", answer.prompt_tokens + answer.made_tokens}};
  }
  return {{"id", answer.id},
          {"object", "response"},
          {"created_at", answer.created},
          {"status", status},
          {"error", nullptr},
          {"incomplete_details", is_incomplete ? Json{{"reason", "max_output_tokens"}} : Json()},
          {"instructions", request_.instructions ? Json(*request_.instructions) : Json()},
          {"max_output_tokens",
           request_.options.max_tokens ? Json(*request_.options.max_tokens) : Json()},
          {"metadata", request_.metadata},
          {"model", answer.model},
          {"output", std::move(output)},
          {"parallel_tool_calls", request_.structure.is_parallel},
          {"previous_response_id", nullptr},
          {"store", false},
          {"temperature", request_.options.sampler.temperature},
          {"text", {{"format", request_.format}}},
          {"tool_choice", request_.tool_choice},
          {"tools", request_.tools},
          {"top_p", request_.options.sampler.top_p},
          {"truncation", "disabled"},
          {"usage", usage}};
}

Json ResponseShape::message(const Answer& answer, const char* status, Json content) const {
  return {{"id", "msg_" + name_in(answer)},
          {"type", "message"},
          {"role", "assistant"},
          {"status", status},
          {"content", std::move(content)}};
}

Json ResponseShape::call(const Answer& answer, size_t number, const char* status,
                         const grammar::ToolCall& call) const {
  return {{"id", fmt::format("fc_{}_{}", name_in(answer), number)},
          {"type", "function_call"},
          {"status", status},
          {"call_id", call_id(answer, 0, number)},
          {"name", call.name},
          {"arguments", call.arguments}};
}

Json ResponseShape::scores(const std::vector<TextToken>& tokens) const {
  return request_.top_logprobs ? chat_logprobs(tokens, tokenizer_) : Json::array();
}

Json ResponseShape::text_part(const std::string& text, const std::vector<TextToken>& tokens) const {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", scores(tokens)}};
}

Json ResponseShape::whole(const Answer& answer) {
  const char* const status = status_of(answer);
  const Choice& one = answer.choices[0];
  const grammar::ToolAnswer said =
      tools_ ? grammar::read_tool_answer(one.text, *tools_) : grammar::ToolAnswer{one.text, {}};
  Json output = Json::array();
  if (!said.text.empty() || said.calls.empty()) {
    output.push_back(message(answer, status, Json::array({text_part(said.text, one.tokens)})));
  }
  for (size_t i = 0; i < said.calls.size(); ++i) {
    const bool is_last = i + 1 == said.calls.size();
    output.push_back(call(answer, i, is_last ? status : "completed", said.calls[i]));
  }
  return object(answer, status, std::move(output));
}

std::string ResponseShape::event(const std::string& kind, Json fields) {
  Json all{{"type", kind}, {"sequence_number", num_events_++}};
  all.update(fields);
  return sse(all, kind);
}

std::string ResponseShape::item_event(const std::string& kind, const Json& item_id, Json fields) {
  Json all{{"item_id", item_id}, {"output_index", done_.size()}};
  all.update(fields);
  return event(kind, std::move(all));
}

std::string ResponseShape::text_event(const std::string& kind, const Answer& answer, Json fields) {
  Json all{{"content_index", 0}};
  all.update(fields);
  return item_event(kind, "msg_" + name_in(answer), std::move(all));
}

std::string ResponseShape::open_message(const Answer& answer) {
  open_ = message(answer, "in_progress", Json::array());
  const std::string added =
      event("response.output_item.added", {{"output_index", done_.size()}, {"item", open_}});
  return added + text_event("response.content_part.added", answer, {{"part", text_part("", {})}});
}

std::string ResponseShape::open_call(const Answer& answer, const std::string& name) {
  const bool is_behind_text = !done_.empty() && done_[0]["type"] == "message";
  call_ = {name, ""};
  open_ = call(answer, done_.size() - (is_behind_text ? 1 : 0), "in_progress", call_);
  return event("response.output_item.added", {{"output_index", done_.size()}, {"item", open_}});
}

std::string ResponseShape::close(const Answer& answer, const char* status) {
  std::string events;
  if (open_.is_null()) return events;
  open_["status"] = status;
  if (open_["type"] == "message") {
    events = text_event("response.output_text.done", answer,
                        {{"text", text_}, {"logprobs", scores(tokens_)}});
    const Json part = text_part(text_, tokens_);
    events += text_event("response.content_part.done", answer, {{"part", part}});
    open_["content"] = Json::array({part});
  } else {
    open_["arguments"] = call_.arguments;
    events = item_event("response.function_call_arguments.done", open_["id"],
                        {{"name", call_.name}, {"arguments", call_.arguments}});
  }
  events += event("response.output_item.done", {{"output_index", done_.size()}, {"item", open_}});
  done_.push_back(std::exchange(open_, nullptr));
  return events;
}

std::string ResponseShape::begin(const Answer& answer) {
  const Json empty = object(answer, "in_progress", Json::array());
  std::string events = event("response.created", {{"response", empty}});
  events += event("response.in_progress", {{"response", empty}});
  return tools_ ? events : events + open_message(answer);
}

std::string ResponseShape::add(const Answer& answer, const grammar::ToolEvent& said,
                               const Piece& piece) {
  using Kind = grammar::ToolEvent::Kind;
  if (said.kind == Kind::kCall) {
    std::string events = close(answer, "completed");
    return events + open_call(answer, said.text);
  }
  if (said.kind == Kind::kArguments) {
    call_.arguments += said.text;
    return item_event("response.function_call_arguments.delta", open_["id"],
                      {{"delta", said.text}});
  }
  std::string events = open_.is_null() ? open_message(answer) : "";
  text_ += said.text;
  return events + text_event("response.output_text.delta", answer,
                             {{"delta", said.text}, {"logprobs", scores(piece.tokens)}});
}

std::string ResponseShape::piece(const Answer& answer, size_t /*choice*/, const Piece& piece) {
  if (request_.top_logprobs) {
    tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
  }
  if (piece.text.empty()) return "";
  std::string events;
  if (!reader_) return add(answer, {grammar::ToolEvent::Kind::kText, piece.text}, piece);
  for (const auto& said : reader_->add(piece.text)) events += add(answer, said, piece);
  return events;
}

std::string ResponseShape::end_of(const Answer& answer, size_t /*choice*/) {
  std::string events;
  if (reader_) {
    for (const auto& said : reader_->finish()) events += add(answer, said, {});
  }
  if (open_.is_null() && done_.empty()) events += open_message(answer);
  return events + close(answer, status_of(answer));
}

std::string ResponseShape::end(const Answer& answer) {
  const char* const status = status_of(answer);
  return event(fmt::format("response.{}", status), {{"response", object(answer, status, done_)}});
}

std::string ResponseShape::failed(const Answer& answer, const ApiError& error) {
  Json response = object(answer, "failed", Json::array());
  response["error"] = {{"code", "server_error"}, {"message", error.what()}};
  return event("response.failed", {{"response", std::move(response)}});
}

}  // namespace atl::openai
