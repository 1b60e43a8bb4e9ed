#include "atoll/grammar/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/pattern.h"

namespace atl::grammar {
namespace {

constexpr size_t kMaxCases = 512;
constexpr size_t kMaxCompared = 10'000;  // Pairs of branches of a oneOf.
constexpr size_t kMaxOpen = 200;         // References and compositions in each other.

uint8_t types_named(const SchemaNode& node, const Json& name) {
  const std::string text = name.is_string() ? name.get<std::string>() : name.dump();
  if (text == "null") return kNull;
  if (text == "boolean") return kTrue | kFalse;
  if (text == "integer") return kInteger;
  if (text == "number") return kNumbers;
  if (text == "string") return kString;
  if (text == "array") return kArray;
  if (text == "object") return kObject;
  refuse(node, "type", fmt::format("'{}' is no type", text));
}

uint8_t types_of(const SchemaNode& node, const Json& value) {
  if (!value.is_array()) return types_named(node, value);
  uint8_t types = 0;
  for (const Json& name : value) types |= types_named(node, name);
  return types;
}

uint32_t count_of(const SchemaNode& node, const std::string& keyword) {
  const Json& value = node.schema->at(keyword);
  const double count = value.is_number() ? value.get<double>() : -1;
  if (count < 0 || count > 1e9 || count != static_cast<double>(static_cast<uint32_t>(count))) {
    refuse(node, keyword, "it must be a whole number from 0 to 1e9");
  }
  return static_cast<uint32_t>(count);
}

bool is_contradiction(const SchemaCase& one) {
  return one.types == 0 || (one.values && one.values->empty());
}

void drop_contradictions(std::vector<SchemaCase>& cases) { std::erase_if(cases, is_contradiction); }

}  // namespace

uint8_t type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNull;
    case Json::value_t::boolean:
      return value.get<bool>() ? kTrue : kFalse;
    case Json::value_t::string:
      return kString;
    case Json::value_t::array:
      return kArray;
    case Json::value_t::object:
      return kObject;
    default:
      return is_whole(value.dump()) ? kInteger : kFraction;
  }
}

bool is_same(const Json& a, const Json& b) { return nlohmann::json(a) == nlohmann::json(b); }

void refuse(const SchemaNode& node, const std::string& keyword, const std::string& why) {
  throw InputError(fmt::format("schema, #{}: '{}': {}", node.path, keyword, why));
}

SchemaNode child(const SchemaNode& node, const std::string& keyword) {
  return {&node.schema->at(keyword), node.root, node.path + "/" + keyword, base_of(node)};
}
SchemaNode child(const SchemaNode& node, const std::string& keyword, const std::string& key) {
  return {&node.schema->at(keyword).at(key), node.root,
          fmt::format("{}/{}/{}", node.path, keyword, key), base_of(node)};
}
SchemaNode child(const SchemaNode& node, const std::string& keyword, size_t index) {
  return {&node.schema->at(keyword).at(index), node.root,
          fmt::format("{}/{}/{}", node.path, keyword, index), base_of(node)};
}

SchemaReader::Cases SchemaReader::read(std::span<const SchemaNode> nodes) {
  Cases cases(1);
  for (const SchemaNode& node : nodes) cases = apply(node, std::move(cases), Sense::kIs);
  return cases;
}

SchemaNode SchemaReader::made(const SchemaNode& node, Json schema) {
  const std::string base = base_of(node);
  const auto place = made_.try_emplace({node.root, base, schema.dump()}, std::move(schema)).first;
  return {&place->second, node.root, node.path, base};
}

SchemaReader::Cases SchemaReader::apply(const SchemaNode& node, Cases cases, Sense sense) {
  if (node.schema->is_boolean()) {
    return node.schema->get<bool>() == (sense == Sense::kIs) ? cases : Cases{};
  }
  if (!node.schema->is_object()) {
    throw InputError(fmt::format("schema, #{}: a schema is an object, true or false", node.path));
  }
  // A schema that applies itself to the same value never comes to say what that is.
  if (std::ranges::find(open_, node.schema) != open_.end() || open_.size() > kMaxOpen) {
    throw InputError(
        fmt::format("schema, #{}: it recurs without end: it refers to itself", node.path));
  }
  open_.push_back(node.schema);
  cases = sense == Sense::kIs ? apply_all(node, std::move(cases)) : apply_any_not(node, cases);
  open_.pop_back();
  if (cases.size() > kMaxCases) {
    throw InputError(fmt::format("schema, #{}: over {} combinations", node.path, kMaxCases));
  }
  return cases;
}

SchemaReader::Cases SchemaReader::apply_all(const SchemaNode& node, Cases cases) {
  std::vector<std::string> later;
  for (const auto& [keyword, value] : node.schema->items()) {
    if (is_annotation(keyword)) continue;
    bool is_simple = true;
    for (SchemaCase& one : cases) is_simple &= refine(node, keyword, one);
    if (!is_simple) later.push_back(keyword);
  }
  drop_contradictions(cases);
  for (const std::string& keyword : later) {
    cases = combine(node, keyword, std::move(cases));
    drop_contradictions(cases);
  }
  return cases;
}

bool SchemaReader::refine(const SchemaNode& node, const std::string& keyword, SchemaCase& one) {
  const Json& schema = *node.schema;
  const auto raise = [](uint32_t& least, uint32_t value) { least = std::max(least, value); };
  const auto lower = [](uint32_t& most, uint32_t value) { most = std::min(most, value); };
  if (keyword == "type") {
    uint8_t types = types_of(node, schema["type"]);
    if (schema.value("nullable", false)) types |= kNull;  // As OpenAPI says it.
    one.types &= types;
  } else if (keyword == "enum" || keyword == "const") {
    const Json listed = keyword == "enum" ? schema["enum"] : Json::array({schema["const"]});
    if (!listed.is_array()) refuse(node, keyword, "it must be a list");
    std::vector<Json> values;
    for (const Json& value : listed) {
      const auto equal = [&](const Json& other) { return is_same(value, other); };
      if (!one.values || std::ranges::any_of(*one.values, equal)) values.push_back(value);
    }
    one.values = std::move(values);
  } else if (keyword == "minItems") {
    raise(one.items.min, count_of(node, keyword));
  } else if (keyword == "maxItems") {
    lower(one.items.max, count_of(node, keyword));
  } else if (keyword == "minProperties") {
    raise(one.properties.min, count_of(node, keyword));
  } else if (keyword == "maxProperties") {
    lower(one.properties.max, count_of(node, keyword));
  } else if (keyword == "required") {
    if (!schema["required"].is_array()) refuse(node, keyword, "it must be a list of names");
    for (const Json& name : schema["required"]) {
      if (!name.is_string()) refuse(node, keyword, "it must be a list of names");
      const auto text = name.get<std::string>();
      if (std::ranges::find(one.required, text) == one.required.end()) one.required.push_back(text);
    }
  } else if (keyword == "properties" || keyword == "patternProperties" ||
             keyword == "additionalProperties") {
    if (keyword != "additionalProperties" && !schema[keyword].is_object()) {
      refuse(node, keyword, "it must be an object");
    }
    const auto is_node = [&](const SchemaNode& other) { return other.schema == node.schema; };
    if (std::ranges::none_of(one.objects, is_node)) one.objects.push_back(node);
  } else if (keyword == "items" || keyword == "prefixItems" || keyword == "uniqueItems") {
    if (keyword == "prefixItems" && !schema[keyword].is_array()) {
      refuse(node, keyword, "it must be a list");
    }
    const auto is_node = [&](const SchemaNode& other) { return other.schema == node.schema; };
    if (std::ranges::none_of(one.arrays, is_node)) one.arrays.push_back(node);
  } else if (keyword == "propertyNames") {
    one.names.push_back(child(node, keyword));
  } else if (keyword == "contains") {
    Contains contains{.schema = child(node, keyword)};
    if (schema.contains("minContains")) contains.times.min = count_of(node, "minContains");
    if (schema.contains("maxContains")) {
      contains.times.max = count_of(node, "maxContains");
      contains.others = made(node, {{"not", schema["contains"]}});
    }
    one.contains.push_back(std::move(contains));
  } else {
    return refine_strings(node, keyword, one);
  }
  return true;
}

bool SchemaReader::refine_strings(const SchemaNode& node, const std::string& keyword,
                                  SchemaCase& one) {
  const Json& schema = *node.schema;
  // "exclusiveMinimum": true says it of "minimum" in draft 4 and OpenAPI 3.0.
  const auto limit = [&](const char* exclusive) {
    if (!schema[keyword].is_number()) refuse(node, keyword, "it must be a number");
    const bool is_exclusive = keyword == exclusive || schema.value(exclusive, Json()) == true;
    return NumberLimit{schema[keyword].dump(), is_exclusive};
  };
  if (keyword == "minLength") {
    one.length.min = std::max(one.length.min, count_of(node, keyword));
  } else if (keyword == "maxLength") {
    one.length.max = std::min(one.length.max, count_of(node, keyword));
  } else if (keyword == "pattern" || keyword == "format") {
    if (!schema[keyword].is_string()) refuse(node, keyword, "it must be a text");
    const auto text = schema[keyword].get<std::string>();
    const char* format = keyword == "format" ? format_pattern(text) : text.c_str();
    if (format == nullptr) {
      refuse_standard_format(node, text);
      return true;
    }
    pattern(node, keyword, format);
    const auto& body = patterns_.at(format);
    const auto is_body = [&](const StringRule& rule) { return rule.body == body; };
    if (std::ranges::none_of(one.strings, is_body)) one.strings.push_back({body});
  } else if (keyword.starts_with("exclusiveM") && schema[keyword].is_boolean()) {
    // Read with the limit.
  } else if (keyword == "minimum" || keyword == "exclusiveMinimum") {
    one.numbers.at_least.push_back(limit("exclusiveMinimum"));
  } else if (keyword == "maximum" || keyword == "exclusiveMaximum") {
    one.numbers.at_most.push_back(limit("exclusiveMaximum"));
  } else if (keyword == "multipleOf") {
    one.numbers.multiples.push_back(limit("multipleOf").number);
  } else {
    return false;
  }
  return true;
}

const Automaton& SchemaReader::pattern(const SchemaNode& node, const std::string& keyword,
                                       const std::string& pattern) {
  auto& known = patterns_[pattern];
  if (known) return *known;
  try {
    known = std::make_shared<const Automaton>(pattern_automaton(pattern, limits_.rule_states));
  } catch (const InputError& error) {
    refuse(node, keyword, fmt::format("'{}': {}", pattern, error.what()));
  }
  return *known;
}

SchemaReader::Cases SchemaReader::combine(const SchemaNode& node, const std::string& keyword,
                                          Cases cases) {
  const Json& schema = *node.schema;
  const auto append = [](Cases& to, Cases from) {
    std::ranges::move(from, std::back_inserter(to));
  };
  if (keyword == "$ref") return apply(references_.resolve(node), std::move(cases), Sense::kIs);
  if (keyword == "not") return apply(child(node, keyword), std::move(cases), Sense::kIsNot);
  if (keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf") {
    if (!schema[keyword].is_array()) refuse(node, keyword, "it must be a list");
  }
  if (keyword == "allOf") {
    for (size_t i = 0; i < schema[keyword].size(); ++i) {
      cases = apply(child(node, keyword, i), std::move(cases), Sense::kIs);
    }
    return cases;
  }
  Cases result;
  if (keyword == "anyOf") {
    for (size_t i = 0; i < schema[keyword].size(); ++i) {
      append(result, apply(child(node, keyword, i), cases, Sense::kIs));
    }
    return result;
  }
  if (keyword == "oneOf") return one_of(node, cases);
  if (keyword == "if") {
    const SchemaNode condition = child(node, "if");
    Cases holds = apply(condition, cases, Sense::kIs);
    if (schema.contains("then")) holds = apply(child(node, "then"), std::move(holds), Sense::kIs);
    if (!schema.contains("else") && !schema.contains("then")) return cases;
    Cases fails = apply(condition, std::move(cases), Sense::kIsNot);
    if (schema.contains("else")) fails = apply(child(node, "else"), std::move(fails), Sense::kIs);
    append(holds, std::move(fails));
    return holds;
  }
  if (is_dependency(keyword)) {
    for (const SchemaNode& part : dependencies(node, keyword)) {
      cases = apply(part, std::move(cases), Sense::kIs);
    }
    return cases;
  }
  refuse_unknown(node, keyword);
}

bool SchemaReader::is_dependency(const std::string& keyword) {
  return keyword == "dependentRequired" || keyword == "dependentSchemas" ||
         keyword == "dependencies";
}

/// A property that is there asks for others, or for a schema of the whole object.
std::vector<SchemaNode> SchemaReader::dependencies(const SchemaNode& node,
                                                   const std::string& keyword) {
  if (!(*node.schema)[keyword].is_object()) refuse(node, keyword, "it must be an object");
  std::vector<SchemaNode> parts;
  for (const auto& [name, value] : (*node.schema)[keyword].items()) {
    const Json present = {{"type", "object"}, {"required", Json::array({name})}};
    const Json asked = value.is_array() ? Json{{"required", value}} : value;
    parts.push_back(made(node, {{"if", present}, {"then", asked}}));
  }
  return parts;
}

SchemaReader::Cases SchemaReader::one_of(const SchemaNode& node, const Cases& cases) {
  const size_t num_branches = node.schema->at("oneOf").size();
  size_t num_compared = 0;
  std::vector<Cases> branches;
  Cases result;
  bool is_disjoint = true;
  for (size_t i = 0; i < num_branches; ++i) {
    branches.push_back(apply(child(node, "oneOf", i), cases, Sense::kIs));
    num_compared += result.size() * branches.back().size();
    if (num_compared > kMaxCompared) refuse(node, "oneOf", "it has too many branches");
    for (const SchemaCase& earlier : result) {
      for (const SchemaCase& one : branches.back()) {
        is_disjoint = is_disjoint && are_disjoint(earlier, one);
      }
    }
    std::ranges::copy(branches.back(), std::back_inserter(result));
  }
  if (is_disjoint) return result;
  // One of them and none of the others, where that can be said.
  result.clear();
  try {
    for (size_t i = 0; i < num_branches; ++i) {
      for (size_t j = 0; j < num_branches; ++j) {
        if (i == j) continue;
        branches[i] = apply(child(node, "oneOf", j), std::move(branches[i]), Sense::kIsNot);
      }
      std::ranges::move(branches[i], std::back_inserter(result));
    }
  } catch (const InputError& error) {
    refuse(node, "oneOf", fmt::format("its branches may overlap ({})", error.what()));
  }
  return result;
}

}  // namespace atl::grammar
