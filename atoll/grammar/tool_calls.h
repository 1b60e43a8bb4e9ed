#pragma once
// Calls of tools, as models were taught to write them: a grammar that keeps them right. Pure
// functions. The way back is grammar/tool_reader.h.
#include <memory>
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

/// What calls begin with; empty: nothing of their own.
std::string_view mark_of(ToolForm form);
/// How much of `mark` the end of `text` is the begin of.
size_t begun(std::string_view text, std::string_view mark);

}  // namespace atl::grammar
