#include "atoll/openai/response.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "atoll/openai/chat.h"

namespace atl::openai {
namespace {

constexpr const char* kScoresIncluded = "message.output_text.logprobs";

/// What the model called, and what came of it, as chats have them.
void add_call(const Json& item, const std::string& name, Json& messages) {
  Fields fields(item, name + ".");
  const std::string call_id = fields.required_text("call_id");
  if (fields.required_text("type") == "function_call_output") {
    messages.push_back(
        {{"role", "tool"}, {"tool_call_id", call_id}, {"content", fields.required("output")}});
    return;
  }
  const bool is_first = messages.empty() || messages.back().value("role", Json()) != "assistant";
  if (is_first) messages.push_back({{"role", "assistant"}, {"content", nullptr}});
  messages.back()["tool_calls"].push_back({{"id", call_id},
                                           {"type", "function"},
                                           {"function",
                                            {{"name", fields.required_text("name")},
                                             {"arguments", fields.required_text("arguments")}}}});
}

/// A text, or a list of messages, calls and their results.
Json input_messages(const Json& input) {
  if (input.is_string()) return Json::array({{{"role", "user"}, {"content", input}}});
  if (!input.is_array()) refuse("input", "'input' must be a text or a list of messages");
  Json messages = Json::array();
  for (size_t i = 0; i < input.size(); ++i) {
    const Json& item = input[i];
    const std::string name = fmt::format("input[{}]", i);
    if (!item.is_object()) refuse(name, fmt::format("'{}' must be an object", name));
    const Json type = item.value("type", Json("message"));
    if (type == "function_call" || type == "function_call_output") {
      add_call(item, name, messages);
      continue;
    }
    if (type != "message") {
      refuse(name, fmt::format("'{}' is no message and no call: others are not supported", name),
             "unsupported");
    }
    Json message = item;  // What came with an earlier answer is nothing that models read.
    for (const char* key : {"type", "id", "status"}) message.erase(key);
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

void read_form(Fields& fields, ResponseRequest& request) {
  if (const Json* text = fields.find("text")) {
    Fields inner(*text, "text.");
    request.structure = read_response_structure(fields, &inner);
    if (const Json* format = inner.find("format")) request.format = *format;
    inner.refuse_if_there("verbosity");
    inner.refuse_unknown();
  } else {
    request.structure = read_response_structure(fields, nullptr);
  }
  if (const Json* tools = fields.find("tools")) request.tools = *tools;
  if (const Json* choice = fields.find("tool_choice")) request.tool_choice = *choice;
  request.chat.tools = request.structure.described;
}

void refuse_what_is_not_there(Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation", "prompt", "reasoning",
                           "max_tool_calls", "context_management", "moderation"}) {
    fields.refuse_if_there(name);
  }
  fields.refuse_if_there("background", {false});
  fields.refuse_if_there("store", {false});
  fields.refuse_if_there("truncation", {"disabled"});
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
  request.options.lossy_kv = read_lossy_kv(fields);
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
  read_form(fields, request);
  refuse_what_is_not_there(fields);
  fields.refuse_unknown();
  return request;
}

}  // namespace atl::openai
