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
  const Json* root = nullptr;  // The whole document.
  std::string path;
  std::string base;  // The URI of what it lies in, which its "$id" is relative to.
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

/// How many items a schema must hold for.
struct Contains {
  SchemaNode schema;
  Bounds times{1, kNoLimit};
  std::optional<SchemaNode> others;  // Holds for items that do not count, where there is a maximum.
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
  std::vector<Contains> contains;
  Bounds properties;
  std::vector<SchemaNode> objects;  // properties, patternProperties, additionalProperties.
  std::vector<SchemaNode> names;    // propertyNames.
  std::vector<std::string> required;
};

/// `node`'s member, one step deeper.
SchemaNode child(const SchemaNode& node, const std::string& keyword);
SchemaNode child(const SchemaNode& node, const std::string& keyword, const std::string& key);
SchemaNode child(const SchemaNode& node, const std::string& keyword, size_t index);
/// The URI that references in `node` are relative to.
std::string base_of(const SchemaNode& node);

/// The schema that asks for items which differ; nullptr where none does.
const SchemaNode* unique_items(const SchemaCase& one);
/// How many items are told by their place.
size_t num_prefix(const SchemaCase& one);
uint8_t type_of(const Json& value);
/// Equal as JSON has it: the order of properties does not matter.
bool is_same(const Json& a, const Json& b);
/// Whether the keyword says nothing about values, or is read with another one: all but those that
/// are known to say something, and what looks like a misspelling of them.
bool is_annotation(const std::string& keyword);
/// Throws InputError that names keyword and place.
[[noreturn]] void refuse(const SchemaNode& node, const std::string& keyword,
                         const std::string& why);

/// The same of a format that JSON schema defines, or its misspelling; others are only notes.
void refuse_standard_format(const SchemaNode& node, const std::string& format);
/// The same of a keyword that is not supported, or misspelled.
[[noreturn]] void refuse_unknown(const SchemaNode& node, const std::string& keyword);

}  // namespace atl::grammar
