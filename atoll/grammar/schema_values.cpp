// What a case says of a property, an item, a text, a value; and whether two cases exclude each
// other.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/pattern.h"
#include "atoll/grammar/schema_reader.h"
#include "atoll/text/python_text.h"

namespace atl::grammar {
namespace {

bool is_false(const SchemaNode& node) { return node.schema->is_boolean() && !*node.schema; }

bool is_true(const SchemaNode& node) {
  return node.schema->is_boolean() ? node.schema->get<bool>() : node.schema->empty();
}

/// Adds a schema to those of a value; false where it forbids all.
bool require(std::vector<SchemaNode>& nodes, SchemaNode node) {
  if (is_false(node)) return false;
  if (!is_true(node)) nodes.push_back(std::move(node));
  return true;
}

constexpr int kMaxCompared = 4;        // Levels of properties in which branches may differ.
constexpr int kMaxApart = 64;          // Values whose cases are read while those of another are.
constexpr int kMaxComparisons = 1000;  // Of values within those that are compared.

}  // namespace

std::optional<std::vector<SchemaNode>> SchemaReader::property(const SchemaCase& one,
                                                              const std::string& name) {
  std::vector<SchemaNode> nodes;
  for (const SchemaNode& object : one.objects) {
    const Json& schema = *object.schema;
    bool is_listed = false;
    if (schema.contains("properties") && schema["properties"].contains(name)) {
      is_listed = true;
      if (!require(nodes, child(object, "properties", name))) return {};
    }
    if (schema.contains("patternProperties")) {
      for (const auto& [text, value] : schema["patternProperties"].items()) {
        if (!accepts(pattern(object, "patternProperties", text), json_body(name))) continue;
        is_listed = true;
        if (!require(nodes, child(object, "patternProperties", text))) return {};
      }
    }
    if (!is_listed && schema.contains("additionalProperties")) {
      if (!require(nodes, child(object, "additionalProperties"))) return {};
    }
  }
  for (const SchemaNode& node : one.names) {
    const Cases cases = read({&node, 1});
    if (std::ranges::none_of(cases, [&](const auto& key) { return admits(key, name); })) return {};
  }
  return nodes;
}

std::optional<std::vector<SchemaNode>> SchemaReader::item(const SchemaCase& one, size_t number) {
  std::vector<SchemaNode> nodes;
  for (const SchemaNode& array : one.arrays) {
    const Json& schema = *array.schema;
    // Before 2020 a list of items was what prefixItems is now, and additionalItems what items is.
    const bool is_old = schema.contains("items") && schema["items"].is_array();
    const char* prefix = is_old ? "items" : "prefixItems";
    const char* rest = is_old ? "additionalItems" : "items";
    if (schema.contains(prefix) && number < schema[prefix].size()) {
      if (!require(nodes, child(array, prefix, number))) return {};
    } else if (schema.contains(rest)) {
      if (!require(nodes, child(array, rest))) return {};
    }
  }
  return nodes;
}

Automaton SchemaReader::string_body(const SchemaCase& one, Bounds length) {
  const size_t max_states = limits_.rule_states;
  Nfa values;
  const uint32_t start = values.add_state();
  const uint32_t end = values.add_state();
  if (one.values) {
    for (const Json& value : *one.values) {
      if (!value.is_string() || !admits(one, value)) continue;
      values.add_empty(values.add_text(start, json_body(value.get_ref<const std::string&>())), end);
    }
    return values.automaton(start, end, max_states);
  }
  Automaton body = length_automaton(length, max_states);
  for (const StringRule& rule : one.strings) {
    body = grammar::combine(body, *rule.body,
                            rule.is_excluded ? Combine::kFirstOnly : Combine::kBoth, max_states);
  }
  if (!one.excluded_texts.empty()) {
    for (const std::string& text : one.excluded_texts) {
      values.add_empty(values.add_text(start, json_body(text)), end);
    }
    body = grammar::combine(body, values.automaton(start, end, max_states), Combine::kFirstOnly,
                            max_states);
  }
  return body;
}

bool SchemaReader::admits(const SchemaCase& one, const Json& value) {
  const uint8_t type = type_of(value);
  if ((one.types & type) == 0) return false;
  if (one.values &&
      std::ranges::none_of(*one.values, [&](const auto& v) { return is_same(v, value); })) {
    return false;
  }
  if (type == kString) {
    const auto text = value.get<std::string>();
    const std::string body = json_body(text);
    const size_t length = text::count_characters(text);
    if (length < one.length.min || length > one.length.max) return false;
    return std::ranges::find(one.excluded_texts, text) == one.excluded_texts.end() &&
           std::ranges::all_of(one.strings, [&](const StringRule& rule) {
             return accepts(*rule.body, body) != rule.is_excluded;
           });
  }
  if ((type & kNumbers) != 0) {
    return accepts(number_automaton(one.numbers, limits_.rule_states), value.dump());
  }
  return type == kArray ? admits_array(one, value) : type != kObject || admits_object(one, value);
}

/// Looks at other values while the cases of one are being read, which may come back to that one.
template <typename Look>
bool SchemaReader::apart(const Look& look) {
  if (++num_apart_ > kMaxApart) throw InputError("it recurs without end: it compares itself");
  const std::vector<const Json*> open = std::exchange(open_, {});
  const bool result = look();
  open_ = open;
  --num_apart_;
  return result;
}

bool SchemaReader::holds(std::span<const SchemaNode> nodes, const Json& value) {
  return apart([&] {
    return std::ranges::any_of(read(nodes), [&](const auto& one) { return admits(one, value); });
  });
}

bool SchemaReader::admits_array(const SchemaCase& one, const Json& value) {
  if (value.size() < one.items.min || value.size() > one.items.max) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    const auto nodes = item(one, i);
    if (!nodes || !holds(*nodes, value[i])) return false;
    if (unique_items(one) == nullptr) continue;
    for (size_t j = 0; j < i; ++j) {
      if (is_same(value[i], value[j])) return false;
    }
  }
  return std::ranges::all_of(one.contains, [&](const Contains& contains) {
    const auto counts = [&](const Json& v) { return holds({&contains.schema, 1}, v); };
    const auto times = std::ranges::count_if(value, counts);
    return times >= contains.times.min && times <= contains.times.max;
  });
}

bool SchemaReader::admits_object(const SchemaCase& one, const Json& value) {
  if (value.size() < one.properties.min || value.size() > one.properties.max) return false;
  for (const auto& [name, member] : value.items()) {
    const auto nodes = property(one, name);
    if (!nodes || !holds(*nodes, member)) return false;
  }
  return std::ranges::all_of(one.required, [&](const auto& name) { return value.contains(name); });
}

bool SchemaReader::are_disjoint(const SchemaCase& a, const SchemaCase& b) {
  const auto types = static_cast<uint8_t>(a.types & b.types);
  for (const auto& [one, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    if (!one->values) continue;
    return std::ranges::none_of(*one->values, [&](const Json& value) {
      return admits(*one, value) && admits(*other, value);
    });
  }
  if ((types & (kNull | kTrue | kFalse)) != 0) return false;
  if ((types & kNumbers) != 0) {
    NumberRules rules = both(a.numbers, b.numbers);
    rules.is_integer = (types & kFraction) == 0;
    if ((types & kInteger) == 0) rules.not_multiples.emplace_back("1");
    if (!is_empty(number_automaton(rules, limits_.rule_states))) return false;
  }
  if ((types & kString) != 0) {
    SchemaCase both = a;
    both.length = {std::max(a.length.min, b.length.min), std::min(a.length.max, b.length.max)};
    std::ranges::copy(b.strings, std::back_inserter(both.strings));
    std::ranges::copy(b.excluded_texts, std::back_inserter(both.excluded_texts));
    if (both.length.min <= both.length.max && !is_empty(string_body(both, {both.length.min}))) {
      return false;
    }
  }
  if ((types & kArray) != 0 &&
      std::max(a.items.min, b.items.min) <= std::min(a.items.max, b.items.max)) {
    return false;
  }
  return (types & kObject) == 0 || objects_are_disjoint(a, b);
}

/// A property that both or one of them must have tells them apart: the usual "kind".
bool SchemaReader::objects_are_disjoint(const SchemaCase& a, const SchemaCase& b) {
  std::vector<std::string> names = a.required;
  names.insert(names.end(), b.required.begin(), b.required.end());
  for (const std::string& name : names) {
    const auto in_a = property(a, name);
    const auto in_b = property(b, name);
    if (!in_a || !in_b) return true;
    const bool is_in_both = std::ranges::find(a.required, name) != a.required.end() &&
                            std::ranges::find(b.required, name) != b.required.end();
    if (is_in_both && values_are_disjoint(*in_a, *in_b)) return true;
  }
  return false;
}

bool SchemaReader::values_are_disjoint(std::span<const SchemaNode> a,
                                       std::span<const SchemaNode> b) {
  if (a.empty() || b.empty() || num_apart_ >= kMaxCompared) return false;
  if (num_apart_ > 0 && ++num_comparisons_ > kMaxComparisons) return false;
  return apart([&] {
    const Cases of_b = read(b);
    return std::ranges::all_of(read(a), [&](const SchemaCase& one) {
      return std::ranges::all_of(of_b, [&](const auto& other) { return are_disjoint(one, other); });
    });
  });
}

}  // namespace atl::grammar
