#pragma once
// Calls of tools, as models were taught to write them: a grammar that keeps them right, and the way
// back from a finished text to the calls. Pure functions.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/grammar/json_schema.h"

namespace atl::grammar {

enum class ToolForm : uint8_t {
  kHermes,   // <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>; Qwen's too.
  kLlama3,   // {"name": ..., "parameters": {...}}, several with "; " between them.
  kMistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
};

struct Tool {
  std::string name;
  std::string parameters;  // A JSON schema of an object; empty: any object.
};

enum class ToolChoice : uint8_t {
  kAuto,      // Text, then calls, if any. In Llama 3's form either text or calls.
  kRequired,  // At least one call, and nothing else.
};

struct ToolOptions {
  ToolForm form = ToolForm::kHermes;
  ToolChoice choice = ToolChoice::kAuto;
  bool is_parallel = true;  // Several calls.
  SchemaOptions schema;
};

/// Answers with calls of `tools`; to require one of them, give only that one. Throws InputError,
/// with the tool's name where its schema is refused.
std::shared_ptr<const Grammar> tool_grammar(const std::vector<Tool>& tools,
                                            const ToolOptions& options);

struct ToolCall {
  std::string name;
  std::string arguments;  // A JSON text, as OpenAI's `arguments`.
  bool operator==(const ToolCall&) const = default;
};

struct ToolAnswer {
  std::string text;  // What stands before the calls.
  std::vector<ToolCall> calls;
  bool operator==(const ToolAnswer&) const = default;
};

/// What a model has said. A text that has no calls, or was cut off within one, is text alone.
ToolAnswer read_tool_answer(std::string_view text, ToolForm form);

/// Where the calls begin in a text that is still being written: what stands before is text that can
/// be shown. Beside whole marks, a beginning of one at the text's end counts.
size_t text_before_calls(std::string_view text, ToolForm form);

}  // namespace atl::grammar
