// Renders templates for jinja_oracle.py: a line of JSON in, a line of JSON out.
//   {"template", "variables", "options": {"trim_blocks", ...}} -> {"text"} or {"error"}
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "atoll/base/error.h"
#include "atoll/text/jinja.h"

namespace {

std::string render(const nlohmann::ordered_json& task) {
  const auto flag = [&](const char* name) { return task["options"].value(name, false); };
  const atl::text::JinjaOptions options{.trim_blocks = flag("trim_blocks"),
                                        .lstrip_blocks = flag("lstrip_blocks"),
                                        .keep_trailing_newline = flag("keep_trailing_newline"),
                                        .strict_undefined = flag("strict_undefined"),
                                        .transformers = flag("transformers")};
  return atl::text::JinjaTemplate(task["template"], options, "template").render(task["variables"]);
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::ordered_json answer;
    try {
      answer["text"] = render(nlohmann::ordered_json::parse(line));
    } catch (const atl::InputError& error) {
      answer["error"] = error.what();
    }
    std::printf("%s\n", answer.dump().c_str());
  }
}
