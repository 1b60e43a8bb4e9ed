#include "atoll/openai/response.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "atoll/openai/chat.h"
#include "atoll/openai/logprobs.h"
#include "atoll/openai/structure.h"

namespace atl::openai {
namespace {

constexpr const char* kScoresIncluded = "message.output_text.logprobs";

/// A text, or a list of messages.
Json input_messages(const Json& input) {
  if (input.is_string()) return Json::array({{{"role", "user"}, {"content", input}}});
  if (!input.is_array()) refuse("input", "'input' must be a text or a list of messages");
  Json messages = Json::array();
  for (size_t i = 0; i < input.size(); ++i) {
    const Json& item = input[i];
    const std::string name = fmt::format("input[{}]", i);
    if (item.is_object() && item.value("type", Json("message")) != "message") {
      refuse(name, fmt::format("'{}' is no message: other items are not supported", name),
             "unsupported");
    }
    Json message = item;
    if (message.is_object()) {  // What came with an earlier answer is nothing that models read.
      for (const char* key : {"type", "id", "status"}) message.erase(key);
    }
    messages.push_back(std::move(message));
  }
  return read_messages(messages, "input");
}

bool includes_scores(Fields& fields) {
  const Json* include = fields.find("include");
  if (include == nullptr) return false;
  const bool is_known = include->is_array() && std::ranges::all_of(*include, [](const Json& one) {
                          return one == kScoresIncluded;
                        });
  if (!is_known) {
    refuse("include", fmt::format("'include' may have \"{}\" alone", kScoresIncluded));
  }
  return !include->empty();
}

void refuse_what_is_not_there(Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt", "reasoning",
                           "max_tool_calls", "context_management", "moderation"}) {
    fields.refuse_if_there(name);
  }
  fields.refuse_if_there("background", {false});
  fields.refuse_if_there("store", {false});
  fields.refuse_if_there("truncation", {"disabled"});
  if (const Json* text = fields.find("text")) {
    Fields inner(*text, "text.");
    read_text_format(inner);
    inner.refuse_if_there("verbosity");
    inner.refuse_unknown();
  }
  read_structure(fields);
  fields.pass_over(
      {"user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"});
}

}  // namespace

ResponseRequest read_response(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  ResponseRequest request;
  request.model = fields.required_text("model");
  request.chat.messages = input_messages(fields.required("input"));
  request.chat.add_generation_prompt = true;
  request.instructions = fields.text("instructions");
  if (request.instructions) {
    const Json system{{"role", "system"}, {"content", *request.instructions}};
    request.chat.messages.insert(request.chat.messages.begin(), system);
  }
  request.options.sampler = read_sampler(fields);
  request.options.seed = fields.whole("seed", std::numeric_limits<int64_t>::min(),
                                      std::numeric_limits<int64_t>::max());
  request.options.max_tokens = fields.whole("max_output_tokens", 1, kMaxTokens);
  request.options.stream = fields.flag("stream", false);
  const bool has_scores = includes_scores(fields);
  const auto top = fields.whole("top_logprobs", 0, limits.max_top_logprobs);
  if (has_scores || top) request.top_logprobs = top.value_or(0);
  if (const Json* metadata = fields.find("metadata")) {
    if (!metadata->is_object()) refuse("metadata", "'metadata' must be an object");
    request.metadata = *metadata;
  }
  if (const Json* options = fields.find("stream_options")) {
    Fields inner(*options, "stream_options.");
    inner.pass_over({"include_obfuscation"});
    inner.refuse_unknown();
  }
  refuse_what_is_not_there(fields);
  fields.refuse_unknown();
  return request;
}

Json ResponseShape::object(const Answer& answer, const char* status, Json output) const {
  const bool is_incomplete = std::string(status) == "incomplete";
  Json usage;
  if (answer.is_finished()) {
    usage = {{"input_tokens", answer.prompt_tokens},
             {"input_tokens_details",
              {{"cached_tokens", answer.cached_tokens}, {"cache_write_tokens", 0}}},
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
          {"parallel_tool_calls", false},
          {"previous_response_id", nullptr},
          {"store", false},
          {"temperature", request_.options.sampler.temperature},
          {"text", {{"format", {{"type", "text"}}}}},
          {"tool_choice", "none"},
          {"tools", Json::array()},
          {"top_p", request_.options.sampler.top_p},
          {"truncation", "disabled"},
          {"usage", usage}};
}

Json ResponseShape::message(const Answer& answer, const char* status, Json content) const {
  return {{"id", "msg_" + answer.id.substr(answer.id.find('_') + 1)},
          {"type", "message"},
          {"role", "assistant"},
          {"status", status},
          {"content", std::move(content)}};
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

namespace {

const char* status_of(const Answer& answer) {
  return answer.choices[0].reason == decoding::FinishReason::kLength ? "incomplete" : "completed";
}

}  // namespace

Json ResponseShape::whole(const Answer& answer) {
  const char* const status = status_of(answer);
  const Choice& one = answer.choices[0];
  Json content = Json::array({text_part(one.text, one.tokens)});
  return object(answer, status, Json::array({message(answer, status, std::move(content))}));
}

std::string ResponseShape::event(const std::string& kind, Json fields) {
  Json all{{"type", kind}, {"sequence_number", num_events_++}};
  all.update(fields);
  return sse(all, kind);
}

Json ResponseShape::place(const Answer& answer) {
  return {{"item_id", "msg_" + answer.id.substr(answer.id.find('_') + 1)},
          {"output_index", 0},
          {"content_index", 0}};
}

std::string ResponseShape::begin(const Answer& answer) {
  const Json empty = object(answer, "in_progress", Json::array());
  std::string events = event("response.created", {{"response", empty}});
  events += event("response.in_progress", {{"response", empty}});
  events += event("response.output_item.added",
                  {{"output_index", 0}, {"item", message(answer, "in_progress", Json::array())}});
  Json part = place(answer);
  part["part"] = text_part("", {});
  return events + event("response.content_part.added", std::move(part));
}

std::string ResponseShape::piece(const Answer& answer, size_t /*choice*/, const Piece& piece) {
  if (request_.top_logprobs) {
    tokens_.insert(tokens_.end(), piece.tokens.begin(), piece.tokens.end());
  }
  if (piece.text.empty()) return "";
  Json fields = place(answer);
  fields["delta"] = piece.text;
  fields["logprobs"] = scores(piece.tokens);
  return event("response.output_text.delta", std::move(fields));
}

std::string ResponseShape::end_of(const Answer& answer, size_t choice) {
  const std::string& text = answer.choices[choice].text;
  Json whole_text = place(answer);
  whole_text["text"] = text;
  whole_text["logprobs"] = scores(tokens_);
  std::string events = event("response.output_text.done", std::move(whole_text));
  Json part = place(answer);
  part["part"] = text_part(text, tokens_);
  events += event("response.content_part.done", part);
  Json item = message(answer, status_of(answer), Json::array({part["part"]}));
  return events +
         event("response.output_item.done", {{"output_index", 0}, {"item", std::move(item)}});
}

std::string ResponseShape::end(const Answer& answer) {
  const char* const status = status_of(answer);
  Json content = Json::array({text_part(answer.choices[0].text, tokens_)});
  Json output = Json::array({message(answer, status, std::move(content))});
  return event(fmt::format("response.{}", status),
               {{"response", object(answer, status, std::move(output))}});
}

std::string ResponseShape::failed(const Answer& answer, const ApiError& error) {
  Json response = object(answer, "failed", Json::array());
  response["error"] = {{"code", "server_error"}, {"message", error.what()}};
  return event("response.failed", {{"response", std::move(response)}});
}

}  // namespace atl::openai
