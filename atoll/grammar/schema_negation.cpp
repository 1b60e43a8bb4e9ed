// What does not hold: "not", the other branches of oneOf, "if" with its "else".
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/grammar/pattern.h"
#include "atoll/grammar/schema_reader.h"

namespace atl::grammar {
namespace {

/// A schema of the lists that differ from one: by their size, or by an item.
Json other_lists(const Json& list) {
  Json ways = Json::array({{{"minItems", list.size() + 1}}});
  if (!list.empty()) ways.push_back({{"maxItems", list.size() - 1}});
  Json before = Json::array();
  for (const Json& item : list) {
    Json items = before;
    items.push_back({{"not", {{"const", item}}}});
    before.push_back(true);
    ways.push_back({{"minItems", items.size()}, {"prefixItems", std::move(items)}});
  }
  return {{"anyOf", std::move(ways)}};
}

/// The same of objects: another property, or one that is missing or different.
Json other_objects(const Json& object) {
  Json more = {{"minProperties", object.size() + 1}, {"required", Json::array()}};
  Json ways = Json::array();
  for (const auto& [name, value] : object.items()) {
    more["required"].push_back(name);
    ways.push_back({{"properties", {{name, {{"not", {{"const", value}}}}}}}});  // Or none.
  }
  ways.push_back(std::move(more));
  return {{"anyOf", std::move(ways)}};
}

}  // namespace

/// One keyword that fails is enough.
SchemaReader::Cases SchemaReader::apply_any_not(const SchemaNode& node, const Cases& cases) {
  Cases result;
  for (const auto& [keyword, value] : node.schema->items()) {
    Cases failing = negate(node, keyword, cases);
    std::erase_if(failing, [](const SchemaCase& one) {
      return one.types == 0 || (one.values && one.values->empty());
    });
    std::ranges::move(failing, std::back_inserter(result));
  }
  return result;
}

/// Keywords that say something of the value alone: beyond a limit, outside of a set.
SchemaReader::Cases SchemaReader::negate_values(const SchemaNode& node, const std::string& keyword,
                                                Cases cases) {
  SchemaCase named;
  if (!refine(node, keyword, named)) refuse_unknown(node, keyword);
  if (!named.objects.empty() || !named.arrays.empty() || !named.names.empty() ||
      !named.contains.empty()) {
    refuse(node, keyword, "what is not so cannot be told for this keyword");
  }
  // Of most formats only what models should write is known, not all that there is.
  constexpr std::string_view kWhole[] = {"date", "uuid", "ipv4"};
  const Json& value = node.schema->at(keyword);
  if (keyword == "format" && !named.strings.empty() &&
      std::ranges::find(kWhole, value.get<std::string>()) == std::end(kWhole)) {
    refuse(node, keyword, fmt::format("what is no {} cannot be told", value.dump()));
  }
  if (named.values) {
    for (const Json& one : *named.values) cases = without_value(node, std::move(cases), one);
    return cases;
  }
  Cases result;
  const auto add = [&](int types, const auto& change) {
    for (SchemaCase one : cases) {
      one.types &= static_cast<uint8_t>(types);
      change(one);
      result.push_back(std::move(one));
    }
  };
  if (named.types != kAnyType) add(~named.types, [](SchemaCase&) {});
  for (const auto& [counted, type] : {std::pair{&SchemaCase::length, kString},
                                      {&SchemaCase::items, kArray},
                                      {&SchemaCase::properties, kObject}}) {
    const auto bounds = counted;
    const uint32_t least = (named.*bounds).min, most = (named.*bounds).max;
    if (least > 0) {
      add(type,
          [&](SchemaCase& one) { (one.*bounds).max = std::min((one.*bounds).max, least - 1); });
    }
    if (most != kNoLimit) {
      add(type,
          [&](SchemaCase& one) { (one.*bounds).min = std::max((one.*bounds).min, most + 1); });
    }
  }
  for (const auto& [number, is_exclusive] : named.numbers.at_least) {
    const NumberLimit other{number, !is_exclusive};
    add(kNumbers, [&](SchemaCase& one) { one.numbers.at_most.push_back(other); });
  }
  for (const auto& [number, is_exclusive] : named.numbers.at_most) {
    const NumberLimit other{number, !is_exclusive};
    add(kNumbers, [&](SchemaCase& one) { one.numbers.at_least.push_back(other); });
  }
  for (const std::string& step : named.numbers.multiples) {
    add(kNumbers, [&](SchemaCase& one) { one.numbers.not_multiples.push_back(step); });
  }
  for (const StringRule& rule : named.strings) {
    add(kString, [&](SchemaCase& one) { one.strings.push_back({rule.body, true}); });
  }
  return result;
}

/// Keywords that have schemas, and "required".
SchemaReader::Cases SchemaReader::negate(const SchemaNode& node, const std::string& keyword,
                                         Cases cases) {
  const Json& schema = *node.schema;
  const auto only = [&](uint8_t types) {
    for (SchemaCase& one : cases) one.types &= types;
  };
  Cases result;
  const auto append = [&](Cases from) { std::ranges::move(from, std::back_inserter(result)); };
  if (keyword == "required") {
    only(kObject);
    for (const Json& name : schema[keyword]) {
      const Json absent = {{"properties", {{name.get<std::string>(), false}}}};
      append(apply(made(node, absent), cases, Sense::kIs));
    }
    return result;
  }
  if (keyword == "properties") {
    only(kObject);
    for (const auto& [name, value] : schema[keyword].items()) {
      const Json other = {{"required", Json::array({name})},
                          {"properties", {{name, {{"not", value}}}}}};
      append(apply(made(node, other), cases, Sense::kIs));
    }
    return result;
  }
  if (keyword == "items" && !schema.contains("prefixItems") && !schema[keyword].is_array()) {
    only(kArray);
    return apply(made(node, {{"contains", {{"not", schema[keyword]}}}}), std::move(cases),
                 Sense::kIs);
  }
  if (keyword == "prefixItems" && schema[keyword].is_array()) {
    only(kArray);
    Json before = Json::array();
    for (const Json& item : schema[keyword]) {
      Json items = before;
      items.push_back({{"not", item}});
      before.push_back(true);
      const Json other = {{"minItems", items.size()}, {"prefixItems", items}};
      append(apply(made(node, other), cases, Sense::kIs));
    }
    return result;
  }
  if (keyword == "contains" && !schema.contains("minContains") && !schema.contains("maxContains")) {
    only(kArray);
    return apply(made(node, {{"items", {{"not", schema[keyword]}}}}), std::move(cases), Sense::kIs);
  }
  return negate_compositions(node, keyword, std::move(cases));
}

SchemaReader::Cases SchemaReader::negate_compositions(const SchemaNode& node,
                                                      const std::string& keyword, Cases cases) {
  const Json& schema = *node.schema;
  Cases result;
  const auto append = [&](Cases from) { std::ranges::move(from, std::back_inserter(result)); };
  if (keyword == "not") return apply(child(node, keyword), std::move(cases), Sense::kIs);
  if (keyword == "$ref") return apply(references_.resolve(node), std::move(cases), Sense::kIsNot);
  if (keyword == "anyOf") {
    for (size_t i = 0; i < schema[keyword].size(); ++i) {
      cases = apply(child(node, keyword, i), std::move(cases), Sense::kIsNot);
    }
    return cases;
  }
  if (keyword == "oneOf") {  // None of them, or two.
    const size_t num_branches = schema[keyword].size();
    for (size_t i = 0; i < num_branches; ++i) {
      for (size_t j = 0; j < i; ++j) {
        Cases first = apply(child(node, keyword, j), cases, Sense::kIs);
        append(apply(child(node, keyword, i), std::move(first), Sense::kIs));
      }
    }
    for (size_t i = 0; i < num_branches; ++i) {
      cases = apply(child(node, keyword, i), std::move(cases), Sense::kIsNot);
    }
    append(std::move(cases));
    return result;
  }
  if (keyword == "if") {
    const SchemaNode condition = child(node, keyword);
    for (const Sense sense : {Sense::kIs, Sense::kIsNot}) {
      const char* asked = sense == Sense::kIs ? "then" : "else";
      if (!schema.contains(asked)) continue;
      Cases chosen = apply(condition, cases, sense);
      append(apply(child(node, asked), std::move(chosen), Sense::kIsNot));
    }
    return result;
  }
  if (is_dependency(keyword)) {
    for (const SchemaNode& part : dependencies(node, keyword)) {
      append(apply(part, cases, Sense::kIsNot));
    }
    return result;
  }
  if (keyword == "allOf") {
    for (size_t i = 0; i < schema[keyword].size(); ++i) {
      append(apply(child(node, keyword, i), cases, Sense::kIsNot));
    }
    return result;
  }
  if (is_annotation(keyword)) return {};
  return negate_values(node, keyword, std::move(cases));
}

/// A number is below or above it; a text is another; what has only one value is not its type.
SchemaReader::Cases SchemaReader::without_value(const SchemaNode& node, Cases cases,
                                                const Json& value) {
  const uint8_t type = type_of(value);
  Cases result;
  for (SchemaCase& one : cases) {
    if (one.values) {
      std::erase_if(*one.values, [&](const Json& other) { return is_same(value, other); });
    } else if ((one.types & type) == 0) {
      // It is not among these anyway.
    } else if ((type & (kNull | kTrue | kFalse)) != 0) {
      one.types &= static_cast<uint8_t>(~type);
    } else if (type == kString) {
      one.excluded_texts.push_back(value);
    } else if ((type & kNumbers) != 0) {
      for (const bool is_below : {true, false}) {
        SchemaCase part = one;
        part.types &= kNumbers;
        auto& limits = is_below ? part.numbers.at_most : part.numbers.at_least;
        limits.push_back({value.dump(), true});
        result.push_back(std::move(part));
      }
      one.types &= static_cast<uint8_t>(~kNumbers);
    } else {
      SchemaCase part = one;
      part.types &= type;
      one.types &= static_cast<uint8_t>(~type);
      const Json others = type == kArray ? other_lists(value) : other_objects(value);
      std::ranges::move(apply(made(node, others), {std::move(part)}, Sense::kIs),
                        std::back_inserter(result));
    }
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace atl::grammar
