#include "atoll/openai/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace atl::openai {
namespace {

using Kind = Structure::Kind;

constexpr size_t kMaxNameBytes = 64;  // As OpenAI's API has it.

[[noreturn]] void refuse_unsupported(const std::string& field) {
  refuse(field, fmt::format("'{}' is not supported", field), "unsupported");
}

/// A schema as it stands in JSON; vLLM's clients also send its text.
Structure schema_structure(const Json& schema, const std::string& field) {
  if (!schema.is_object() && !schema.is_boolean()) {
    refuse(field, fmt::format("'{}' must be a JSON schema: an object", field));
  }
  return {.kind = Kind::kSchema, .field = field, .schema = schema.dump()};
}

/// {"name", "schema", "strict", "description"}: every answer is as strict as can be.
Structure named_schema(Fields& fields) {
  fields.required_text("name");
  fields.text("description");
  fields.flag("strict", true);
  const Json& schema = fields.required("schema");
  return schema_structure(schema, fields.name_of("schema"));
}

/// `schema_at`: where the schema's fields are: a member, or beside the type.
Structure typed_format(const Json& json, const std::string& name, const char* schema_at) {
  Fields fields(json, name + ".");
  const std::string type = fields.required_text("type");
  Structure structure;
  if (type == "json_schema") {
    if (schema_at == nullptr) {
      structure = named_schema(fields);
    } else {
      Fields inner(fields.required(schema_at), fields.name_of(schema_at) + ".");
      structure = named_schema(inner);
      inner.refuse_unknown();
    }
  } else if (type == "json_object") {
    structure = {.kind = Kind::kObject, .field = name};
  } else if (type != "text") {
    refuse(name + ".type",
           fmt::format("'{}.type' must be text, json_object or json_schema, not '{}'", name, type));
  }
  fields.refuse_unknown();
  return structure;
}

Structure guided_json(const Json& json, const std::string& field) {
  if (!json.is_string()) return schema_structure(json, field);
  const Json schema = Json::parse(json.get_ref<const std::string&>(), nullptr, false);
  return schema_structure(schema, field);
}

Structure guided_choice(const Json& json, const std::string& field) {
  Structure structure{.kind = Kind::kChoice, .field = field};
  if (!json.is_array() || json.empty()) {
    refuse(field, fmt::format("'{}' must be a list of texts, and not empty", field));
  }
  for (const Json& one : json) {
    if (!one.is_string()) refuse(field, fmt::format("'{}' must be a list of texts", field));
    structure.choices.push_back(one);
  }
  return structure;
}

/// vLLM's fields, of which one may be there.
void read_guided(Fields& fields, const std::string& prefix, std::vector<Structure>& found) {
  if (const Json* json = fields.find(prefix + "json")) {
    found.push_back(guided_json(*json, fields.name_of(prefix + "json")));
  }
  if (const Json* json = fields.find(prefix + "choice")) {
    found.push_back(guided_choice(*json, fields.name_of(prefix + "choice")));
  }
  for (const char* name : {"regex", "grammar"}) {
    if (fields.find(prefix + name) != nullptr) refuse_unsupported(fields.name_of(prefix + name));
  }
}

void check_name(const std::string& name, const std::string& field) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    refuse(field, fmt::format("'{}' must have from 1 to {} bytes", field, kMaxNameBytes));
  }
}

grammar::Tool read_function(Fields& fields) {
  grammar::Tool tool{.name = fields.required_text("name"), .parameters = ""};
  check_name(tool.name, fields.name_of("name"));
  fields.text("description");
  fields.flag("strict", true);
  if (const Json* schema = fields.find("parameters")) {
    const std::string field = fields.name_of("parameters");
    if (!schema->is_object()) refuse(field, fmt::format("'{}' must be an object", field));
    if (!schema->empty()) tool.parameters = schema->dump();
  }
  return tool;
}

/// Notes one of the request's tools.
void read_tool(const Json& json, const std::string& where, ToolSpelling spelling,
               Structure& structure) {
  Fields fields(json, where + ".");
  const std::string type = fields.required_text("type");
  if (type != "function") refuse_unsupported(where + ".type");
  Json function = json;
  if (spelling == ToolSpelling::kNested) {
    Fields inner(fields.required("function"), fields.name_of("function") + ".");
    structure.tools.push_back(read_function(inner));
    inner.refuse_unknown();
    function = json["function"];
  } else {
    structure.tools.push_back(read_function(fields));
    function.erase("type");
  }
  fields.refuse_unknown();
  function.erase("strict");  // Of no use to a model, which may repeat it.
  const std::string& name = structure.tools.back().name;
  if (std::ranges::count(structure.tools, name, &grammar::Tool::name) > 1) {
    refuse(where, fmt::format("'{}': there is another tool '{}'", where, name));
  }
  structure.described.push_back({{"type", "function"}, {"function", std::move(function)}});
}

void keep_tool(const Json& choice, ToolSpelling spelling, Structure& structure) {
  Fields fields(choice, "tool_choice.");
  if (fields.required_text("type") != "function") refuse_unsupported("tool_choice.type");
  std::string name;
  if (spelling == ToolSpelling::kNested) {
    Fields inner(fields.required("function"), "tool_choice.function.");
    name = inner.required_text("name");
    inner.refuse_unknown();
  } else {
    name = fields.required_text("name");
  }
  fields.refuse_unknown();
  std::erase_if(structure.tools, [&](const grammar::Tool& tool) { return tool.name != name; });
  if (structure.tools.empty()) {
    refuse("tool_choice", fmt::format("'tool_choice' names '{}', which is none of 'tools'", name));
  }
  structure.tool_choice = grammar::ToolChoice::kRequired;
  structure.is_parallel = false;  // One call of this tool.
}

/// What the answer must be by `tools` and `tool_choice`; kText where they ask for nothing.
Structure read_tools(Fields& fields, ToolSpelling spelling) {
  Structure structure{.kind = Kind::kTools, .field = "tools"};
  if (const Json* tools = fields.find("tools")) {
    if (!tools->is_array()) refuse("tools", "'tools' must be a list of tools");
    for (size_t i = 0; i < tools->size(); ++i) {
      read_tool((*tools)[i], fmt::format("tools[{}]", i), spelling, structure);
    }
  }
  structure.is_parallel = fields.flag("parallel_tool_calls", true);
  const Json* found = fields.find("tool_choice");
  const Json choice = found == nullptr ? Json("auto") : *found;
  if (choice.is_object()) {
    keep_tool(choice, spelling, structure);
  } else if (choice == "required") {
    structure.tool_choice = grammar::ToolChoice::kRequired;
    if (structure.tools.empty()) refuse("tool_choice", "'tool_choice' is required without 'tools'");
  } else if (choice != "auto" && choice != "none") {
    refuse("tool_choice", "'tool_choice' must be none, auto, required or name a function");
  }
  if (structure.tools.empty() || choice == "none") return {};
  return structure;
}

/// Calls have the word where both are there: a text beside them would have another form.
Structure combined(Structure format, Structure tools) {
  if (tools.kind == Kind::kText) return format;
  if (format.kind != Kind::kText && tools.tool_choice == grammar::ToolChoice::kAuto) {
    refuse(format.field,
           fmt::format("'{}' beside 'tools' needs a 'tool_choice' other than auto", format.field),
           "unsupported");
  }
  return tools;
}

void refuse_functions(Fields& fields) {
  fields.refuse_if_there("functions", {Json::array()});
  fields.refuse_if_there("function_call", {"none", "auto"});
}

}  // namespace

Structure read_format(Fields& fields) {
  std::vector<Structure> found;
  if (const Json* format = fields.find("response_format")) {
    found.push_back(typed_format(*format, "response_format", "json_schema"));
    if (found.back().kind == Kind::kText) found.clear();
  }
  read_guided(fields, "guided_", found);
  if (const Json* outputs = fields.find("structured_outputs")) {
    Fields inner(*outputs, "structured_outputs.");
    read_guided(inner, "", found);
    inner.refuse_unknown();
  }
  if (found.size() > 1) {
    refuse(found[1].field,
           fmt::format("'{}' and '{}' exclude each other", found[0].field, found[1].field));
  }
  return found.empty() ? Structure{} : std::move(found[0]);
}

Structure read_structure(Fields& fields) {
  refuse_functions(fields);
  return combined(read_format(fields), read_tools(fields, ToolSpelling::kNested));
}

Structure read_response_structure(Fields& fields, Fields* text) {
  Structure format;
  if (const Json* json = text == nullptr ? nullptr : text->find("format")) {
    format = typed_format(*json, "text.format", nullptr);
  }
  return combined(std::move(format), read_tools(fields, ToolSpelling::kFlat));
}

}  // namespace atl::openai
