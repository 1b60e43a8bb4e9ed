// What does not hold: "not", the other branches of oneOf, "if" with its "else".
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/grammar/pattern.h"
#include "atoll/grammar/schema_reader.h"

namespace atl::grammar {
namespace {

/// The limit on the other side of a count; false where nothing lies beyond.
bool turn(const std::string& keyword, const Json& schema, const char* least, Bounds& bounds) {
  const auto count = schema.at(keyword).get<uint32_t>();
  if (keyword != least) {
    bounds.min = std::max(bounds.min, count + 1);
  } else if (count == 0) {
    return false;
  } else {
    bounds.max = std::min(bounds.max, count - 1);
  }
  return true;
}

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

SchemaReader::Cases SchemaReader::negate(const SchemaNode& node, const std::string& keyword,
                                         Cases cases) {
  const Json& schema = *node.schema;
  const auto only = [&](uint8_t types) {
    for (SchemaCase& one : cases) one.types &= types;
  };
  if (keyword == "type") {
    SchemaCase named;
    refine(node, keyword, named);
    only(static_cast<uint8_t>(~named.types));
    return cases;
  }
  if (keyword == "enum" || keyword == "const") {
    const Json listed = keyword == "enum" ? schema["enum"] : Json::array({schema["const"]});
    for (const Json& value : listed) cases = without_value(node, std::move(cases), value);
    return cases;
  }
  if (keyword == "minLength" || keyword == "maxLength" || keyword == "minItems" ||
      keyword == "maxItems" || keyword == "minProperties" || keyword == "maxProperties") {
    const std::string what = keyword.substr(3);
    only(what == "Length" ? kString : what == "Items" ? kArray : kObject);
    Cases result;
    for (SchemaCase& one : cases) {
      Bounds& bounds = what == "Length" ? one.length : what == "Items" ? one.items : one.properties;
      SchemaCase checked;
      refine(node, keyword, checked);  // Refuses what is no count.
      if (turn(keyword, schema, ("min" + what).c_str(), bounds)) result.push_back(std::move(one));
    }
    return result;
  }
  if (keyword == "pattern" || keyword == "format") {
    SchemaCase named;
    refine(node, keyword, named);
    if (named.strings.empty()) return {};  // A format that says nothing.
    // Of most formats only what models should write is known, not all that there is.
    const auto format = schema[keyword].get<std::string>();
    if (keyword == "format" && format != "date" && format != "uuid" && format != "ipv4") {
      refuse(node, keyword, fmt::format("what is no '{}' cannot be told", format));
    }
    only(kString);
    for (SchemaCase& one : cases) one.strings.push_back({named.strings[0].body, true});
    return cases;
  }
  if (keyword == "multipleOf") {
    SchemaCase named;
    refine(node, keyword, named);
    only(kNumbers);
    for (SchemaCase& one : cases) one.numbers.not_multiples.push_back(named.numbers.multiples[0]);
    return cases;
  }
  if (keyword == "minimum" || keyword == "maximum" || keyword == "exclusiveMinimum" ||
      keyword == "exclusiveMaximum") {
    SchemaCase named;
    refine(node, keyword, named);
    if (named.numbers.are_empty()) return {};  // Only says of another that it is exclusive.
    only(kNumbers);
    for (SchemaCase& one : cases) {
      for (const NumberLimit& limit : named.numbers.at_least) {
        one.numbers.at_most.push_back({limit.number, !limit.is_exclusive});
      }
      for (const NumberLimit& limit : named.numbers.at_most) {
        one.numbers.at_least.push_back({limit.number, !limit.is_exclusive});
      }
    }
    return cases;
  }
  return negate_parts(node, keyword, std::move(cases));
}

/// Keywords that have schemas, and "required".
SchemaReader::Cases SchemaReader::negate_parts(const SchemaNode& node, const std::string& keyword,
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
  refuse(node, keyword, "what is not so cannot be told for this keyword");
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
