#pragma once
// How a model is told of tools, and of what they answered: by its chat template, or, where that
// knows of none, in words. Pure.
#include <optional>
#include <string>
#include <string_view>

#include "atoll/grammar/tool_calls.h"
#include "atoll/openai/api_error.h"
#include "atoll/tokenizer/chat_template.h"

namespace atl::openai {

/// How the template's model was taught to write calls: told from the template's text. Nothing:
/// in a form that is not supported.
std::optional<grammar::ToolForm> tool_form(std::string_view template_text);

/// Whether the template writes down tools.
bool knows_tools(std::string_view template_text);

/// The chat without tools, calls and their results: they are texts of the messages, in the words
/// that Hermes' models were taught with.
tokenizer::Chat with_tools_in_words(tokenizer::Chat chat);

/// A message's "tool_calls" as templates have them: arguments are objects, not texts. Throws
/// ApiError; `field` begins names in messages.
Json read_tool_calls(const Json& list, const std::string& field);

}  // namespace atl::openai
