#include "atoll/openai/structure.h"

#include <fmt/format.h>

namespace atl::openai {
namespace {

/// `empty` values ask for nothing.
void refuse_yet(Fields& fields, const std::string& name, std::initializer_list<Json> empty) {
  const Json* json = fields.find(name);
  if (json == nullptr) return;
  for (const Json& one : empty) {
    if (*json == one) return;
  }
  refuse(fields.name_of(name), fmt::format("'{}' is not supported yet", fields.name_of(name)),
         "unsupported");
}

}  // namespace

void read_structure(Fields& fields) {
  refuse_yet(fields, "response_format", {{{"type", "text"}}});
  refuse_yet(fields, "tools", {Json::array()});
  refuse_yet(fields, "tool_choice", {"none", "auto"});
  refuse_yet(fields, "functions", {Json::array()});
  refuse_yet(fields, "function_call", {"none", "auto"});
  for (const char* name :
       {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"}) {
    refuse_yet(fields, name, {});
  }
  fields.pass_over({"parallel_tool_calls"});
}

void read_text_format(Fields& text) { refuse_yet(text, "format", {{{"type", "text"}}}); }

}  // namespace atl::openai
