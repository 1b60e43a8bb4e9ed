// Which keywords say something about values. The standard has others passed over; one that is
// nearly one of these, though, is more likely a slip than a note, and would silently ask for
// nothing. The same of formats.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/nearest.h"
#include "atoll/grammar/schema_case.h"

namespace atl::grammar {
namespace {

const std::vector<std::string>& keywords() {
  static const std::vector<std::string> kKeywords{
      // clang-format off
      "$ref", "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if",
      "properties", "patternProperties", "additionalProperties", "propertyNames", "required",
      "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
      "items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems",
      "minLength", "maxLength", "pattern", "format",
      "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
      // Refused wherever they stand: of this draft and of older ones.
      "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "disallow",
      "extends", "divisibleBy",
      // clang-format on
  };
  return kKeywords;
}

/// What is read with another keyword, or says nothing; else too near to the others.
bool is_passed_over(const std::string& keyword) {
  static const std::vector<std::string> kPassedOver{
      // clang-format off
      "then", "else", "nullable", "additionalItems", "minContains", "maxContains", "default",
      "examples", "example", "title", "description", "$id", "id", "$anchor", "$defs", "definitions",
      // clang-format on
  };
  return keyword.starts_with("x-") || std::ranges::find(kPassedOver, keyword) != kPassedOver.end();
}

/// The one of `known` that a word is, or is nearly.
std::string meant(const std::string& word, const std::vector<std::string>& known) {
  return nearest(word, known, std::min<size_t>(word.size() / 3, 3));
}

}  // namespace

bool is_annotation(const std::string& keyword) {
  return is_passed_over(keyword) || meant(keyword, keywords()).empty();
}

void refuse_standard_format(const SchemaNode& node, const std::string& format) {
  static const std::vector<std::string> kFormats{
      // clang-format off
      "date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname",
      "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template",
      "json-pointer", "relative-json-pointer", "regex",
      // clang-format on
  };
  const std::string known = meant(format, kFormats);
  if (known == format) refuse(node, "format", fmt::format("'{}' is not supported", format));
  if (known.empty()) return;
  refuse(node, "format", fmt::format("there is no '{}'; did you mean '{}'?", format, known));
}

void refuse_unknown(const SchemaNode& node, const std::string& keyword) {
  const std::string known = meant(keyword, keywords());
  refuse(node, keyword,
         known == keyword ? "this keyword is not supported"
                          : fmt::format("there is no such keyword; did you mean '{}'?", known));
}

}  // namespace atl::grammar
