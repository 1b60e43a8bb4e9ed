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
    only(kString);
    for (SchemaCase& one : cases) one.strings.push_back({named.strings[0].body, true});
    return cases;
  }
  if (keyword == "minimum" || keyword == "maximum" || keyword == "exclusiveMinimum" ||
      keyword == "exclusiveMaximum") {
    SchemaCase named;
    refine(node, keyword, named);
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
  if (keyword == "contains" && !schema.contains("minContains")) {
    only(kArray);
    return apply(made(node, {{"items", {{"not", schema[keyword]}}}}), std::move(cases), Sense::kIs);
  }
  if (keyword == "not") return apply(child(node, keyword), std::move(cases), Sense::kIs);
  if (keyword == "$ref") return apply(resolve(node), std::move(cases), Sense::kIsNot);
  if (keyword == "anyOf") {
    for (size_t i = 0; i < schema[keyword].size(); ++i) {
      cases = apply(child(node, keyword, i), std::move(cases), Sense::kIsNot);
    }
    return cases;
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
    } else if (value.empty()) {
      uint32_t& least = type == kArray ? one.items.min : one.properties.min;
      SchemaCase part = one;
      one.types &= static_cast<uint8_t>(~type);
      (type == kArray ? part.items.min : part.properties.min) = std::max(least, 1U);
      part.types &= type;
      result.push_back(std::move(part));
    } else {
      refuse(node, "not", "lists and objects can be excluded only when they are empty");
    }
    result.push_back(std::move(one));
  }
  return result;
}

}  // namespace atl::grammar
