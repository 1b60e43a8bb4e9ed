#pragma once
// The form that a request wants its answer in: JSON, one of some texts, calls of tools. Pure.
#include <string>
#include <vector>

#include "atoll/grammar/tool_calls.h"
#include "atoll/openai/fields.h"

namespace atl::openai {

struct Structure {
  enum class Kind : uint8_t { kText, kObject, kSchema, kChoice, kTools };
  Kind kind = Kind::kText;
  std::string field;                 // Where it was asked for.
  std::string schema;                // Of kSchema: a JSON text.
  std::vector<std::string> choices;  // Of kChoice.
  std::vector<grammar::Tool> tools;  // Of kTools: those that may be called.
  grammar::ToolChoice tool_choice = grammar::ToolChoice::kAuto;
  bool is_parallel = true;  // Several calls.
  Json described;           // The tools as chat templates get them; null: none.
};

/// How a request spells its tools: {"type", "function": {"name", ...}}, or {"type", "name", ...}.
enum class ToolSpelling : uint8_t { kNested, kFlat };

/// response_format, and vLLM's guided_json, guided_choice and structured_outputs. Throws ApiError.
Structure read_format(Fields& fields);
/// The same of a chat, which may have tools, too.
Structure read_structure(Fields& fields);
/// Of responses: text.format and tools. `text` is null where the request has none.
Structure read_response_structure(Fields& fields, Fields* text);

}  // namespace atl::openai
