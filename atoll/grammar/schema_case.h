#pragma once
// A schema in a form that can be written down as a grammar: cases, of which one must hold. Within a
// case all requirements stand side by side, each type's for itself, as JSON schema means them.
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "atoll/grammar/number_automaton.h"

namespace atl::grammar {

using Json = nlohmann::ordered_json;  // Properties keep their order.

/// A schema within a document; `path` is a JSON pointer for messages.
struct SchemaNode {
  const Json* schema = nullptr;
  const Json* root = nullptr;  // What its references begin at.
  std::string path;
};

enum Types : uint8_t {
  kNull = 1,
  kTrue = 2,
  kFalse = 4,
  kInteger = 8,
  kFraction = 16,
  kString = 32,
  kArray = 64,
  kObject = 128,
  kNumbers = kInteger | kFraction,
  kAnyType = 255,
};

/// A regular set of strings, or what is left without it.
struct StringRule {
  std::shared_ptr<const Automaton> body;  // Between the quotes.
  bool is_excluded = false;
};

struct SchemaCase {
  uint8_t types = kAnyType;
  std::optional<std::vector<Json>> values;  // If there, one of these.
  NumberRules numbers;
  Bounds length;
  std::vector<StringRule> strings;
  std::vector<std::string> excluded_texts;
  Bounds items;
  std::vector<SchemaNode> arrays;  // prefixItems, items, uniqueItems.
  std::vector<SchemaNode> contains;
  uint32_t min_contains = 1;
  Bounds properties;
  std::vector<SchemaNode> objects;  // properties, patternProperties, additionalProperties.
  std::vector<SchemaNode> names;    // propertyNames.
  std::vector<std::string> required;
};

uint8_t type_of(const Json& value);
/// Equal as JSON has it: the order of properties does not matter.
bool is_same(const Json& a, const Json& b);
/// Whether the keyword says nothing about values, or is read with another one.
bool is_annotation(const std::string& keyword);
/// Throws InputError that names keyword and place.
[[noreturn]] void refuse(const SchemaNode& node, const std::string& keyword,
                         const std::string& why);

}  // namespace atl::grammar
