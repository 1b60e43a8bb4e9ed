#include "atoll/openai/tool_prompt.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/openai/fields.h"

namespace atl::openai {
namespace {

constexpr const char* kWords =
    "# Tools\n\n"
    "You may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n"
    "<tools>\n{}</tools>\n\n"
    "For each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n"
    "<tool_call>\n{{\"name\": <function-name>, \"arguments\": <args-json-object>}}\n</tool_call>";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string text_of(const Json& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : "";
}

void say_calls(Json& message) {
  std::string text = text_of(message);
  for (const Json& call : message["tool_calls"]) {
    const Json& function = call["function"];
    const Json said{{"name", function["name"]}, {"arguments", function["arguments"]}};
    text += fmt::format("{}<tool_call>\n{}\n</tool_call>", text.empty() ? "" : "\n", said.dump());
  }
  message.erase("tool_calls");
  message["content"] = text;
}

}  // namespace

std::optional<grammar::ToolForm> tool_form(std::string_view text) {
  if (!knows_tools(text)) return grammar::ToolForm::kHermes;  // As with_tools_in_words() has it.
  for (const char* other :
       {"[ARGS]", "<function=", "<arg_key>", "<invoke"}) {  // Calls that are no JSON.
    if (contains(text, other)) return std::nullopt;
  }
  if (contains(text, "[TOOL_CALLS]")) return grammar::ToolForm::kMistral;
  if (contains(text, "<tool_call>")) return grammar::ToolForm::kHermes;
  if (contains(text, "<|start_header_id|>") && contains(text, "\"parameters\""))
    return grammar::ToolForm::kLlama3;
  return std::nullopt;
}

bool knows_tools(std::string_view text) { return contains(text, "tools"); }

tokenizer::Chat with_tools_in_words(tokenizer::Chat chat) {
  Json messages = Json::array();
  if (!chat.tools.is_null()) {
    std::string tools;
    for (const Json& tool : chat.tools) tools += tool.dump() + "\n";
    messages.push_back({{"role", "system"}, {"content", fmt::format(kWords, tools)}});
  }
  bool was_result = false;
  for (Json& message : chat.messages) {
    const bool is_result = message["role"] == "tool";
    if (message.contains("tool_calls") && message["tool_calls"].is_array()) say_calls(message);
    if (is_result) {
      const std::string said =
          fmt::format("<tool_response>\n{}\n</tool_response>", text_of(message));
      if (was_result) {
        messages.back()["content"] = text_of(messages.back()) + "\n" + said;
      } else {
        messages.push_back({{"role", "user"}, {"content", said}});
      }
    } else if (message["role"] == "system" && messages.size() == 1 && !chat.tools.is_null() &&
               &message == &chat.messages[0]) {
      messages[0]["content"] = text_of(message) + "\n\n" + text_of(messages[0]);
    } else {
      messages.push_back(std::move(message));
    }
    was_result = is_result;
  }
  chat.messages = std::move(messages);
  chat.tools = nullptr;
  return chat;
}

Json read_tool_calls(const Json& list, const std::string& field) {
  if (!list.is_array()) refuse(field, fmt::format("'{}' must be a list of calls", field));
  Json calls = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = fmt::format("{}[{}]", field, i);
    Fields call(list[i], name + ".");
    Fields function(call.required("function"), name + ".function.");
    function.required_text("name");
    const Json& given = function.required("arguments");
    Json read = list[i];
    if (given.is_string()) {
      const std::string& text = given.get_ref<const std::string&>();
      read["function"]["arguments"] = Json::parse(text.empty() ? "{}" : text, nullptr, false);
    }
    if (!read["function"]["arguments"].is_object()) {
      refuse(function.name_of("arguments"),
             fmt::format("'{}' must be a JSON object, as text", function.name_of("arguments")));
    }
    calls.push_back(std::move(read));
  }
  return calls;
}

}  // namespace atl::openai
