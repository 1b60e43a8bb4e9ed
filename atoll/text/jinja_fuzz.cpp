// Templates from strangers: they render, or are refused with an InputError, and never take long.
// Inputs are also used to put a template together of pieces, so that it passes the parser.
#include <cstdint>
#include <iterator>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/text/jinja.h"

namespace atl::text {
namespace {

constexpr std::string_view kPieces[] = {
    "{{ ",
    " }}",
    "{% if ",
    "{% for i in ",
    "{% set x = ",
    " %}",
    "{% endif %}",
    "{% endfor %}",
    "{% else %}",
    "{%- ",
    "-%}",
    "messages",
    "x",
    "i",
    ".content",
    "['role']",
    "[0]",
    "[::-1]",
    "[1:",
    "]",
    "(",
    ")",
    " + ",
    " ~ ",
    " * 99999999",
    " // 0",
    " % 3",
    " ** 9",
    " == ",
    " in ",
    " and ",
    " is defined",
    " is odd",
    " if ",
    " else ",
    "|trim",
    "|tojson",
    "|length",
    "|list",
    "|join(',')",
    "|map('upper')",
    "|sort",
    "|int",
    "|indent",
    "|replace('a', 'bb')",
    "|string",
    "'text %s é'",
    "'a\\nb'",
    "1",
    "2.5",
    "none",
    "[",
    ", ",
    "{'a': ",
    "}",
    ".split(",
    ".strip()",
    ".upper()",
    ".format(",
    "range(9)",
    "namespace(a=",
    "loop.last",
    "{% macro f(x) %}",
    "{% endmacro %}",
    "f(",
};

void try_render(std::string_view source, const JinjaOptions& options) {
  static const nlohmann::ordered_json variables = {
      {"messages",
       {{{"role", "user"}, {"content", "Hi é"}}, {{"role", "x"}, {"content", nullptr}}}},
      {"x", {1, "a", 2.5, true}}};
  try {
    JinjaTemplate(std::string(source), options, "fuzz").render(variables);
  } catch (const InputError&) {  // Refused, as it should be.
  }
}

}  // namespace
}  // namespace atl::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  atl::text::try_render(input, atl::text::kChatTemplate);
  std::string composed;
  for (const char piece : input.substr(0, 200)) {
    composed += atl::text::kPieces[static_cast<uint8_t>(piece) % std::size(atl::text::kPieces)];
  }
  atl::text::try_render(composed,
                        size % 2 == 0 ? atl::text::kChatTemplate : atl::text::JinjaOptions{});
  return 0;
}
