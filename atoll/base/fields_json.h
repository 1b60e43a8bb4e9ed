#pragma once
// Structs as JSON and back, by their lists of fields (base/fields.h): numbers, truth values, texts,
// enumerators by their names, other such structs, and lists and optional ones of all these. JSON
// has no NaN and no infinity: they are written as null. For sources, not for headers: JSON takes 2
// s.
#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/fields.h"

namespace atl {

/// Of an enumeration the names_of() that argument-dependent lookup finds has the names in order.
template <typename Json = nlohmann::json, typename T>
Json json_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return names_of(value)[static_cast<size_t>(value)];
  } else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
    return value;
  } else if constexpr (requires { value.has_value(); }) {
    return value ? json_of<Json>(*value) : Json();
  } else if constexpr (requires { value.begin(); }) {
    Json list = Json::array();
    for (const auto& item : value) list.push_back(json_of<Json>(item));
    return list;
  } else {
    Json object = Json::object();
    visit_fields(value, [&]<typename Part, typename... More>(const char* name, const Part& part,
                                                             const More&...) {
      constexpr bool kMayGo = kIsAmong<LeftOutWhenNew, More...>;
      constexpr bool kMayBeNull = kIsAmong<NullWhenEmpty, More...>;
      bool is_new = false;
      if constexpr (requires { part.has_value(); }) {
        is_new = !part.has_value();
      } else if constexpr (kMayGo || kMayBeNull) {
        is_new = part == Part{};
      }
      if (is_new && kMayGo) return;
      const bool is_null = is_new && kMayBeNull;
      object[name] = is_null ? Json() : json_of<Json>(part);
    });
    return object;
  }
}

/// What a struct makes of a field that its JSON has not, or has as null.
enum class Lacking {
  kRefused,     // But for those that may lack.
  kKeepsValue,  // As they were: what other versions of a program wrote is read.
};

/// Sets `value`, which `name` names in messages; fields that it does not know are ignored. Throws
/// InputError, after which `value` is unspecified.
template <typename T>
void read_json(const auto& json, T& value, Lacking lacking, const char* name = "it") {
  const auto require = [&](bool is_so, const char* what) {
    if (!is_so) throw InputError(fmt::format("'{}' is no {}", name, what));
  };
  if constexpr (std::is_enum_v<T>) {
    const auto names = names_of(value);
    const auto found =
        json.is_string() ? std::ranges::find(names, json.template get<std::string>()) : names.end();
    require(found != names.end(), "known state");
    value = static_cast<T>(found - names.begin());
  } else if constexpr (std::same_as<T, std::string>) {
    require(json.is_string(), "text");
    value = json.template get<std::string>();
  } else if constexpr (std::same_as<T, bool>) {
    require(json.is_boolean(), "truth value");
    value = json.template get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    require(json.is_number_integer(), "whole number");
    const bool is_in_range = json.is_number_unsigned()
                                 ? std::in_range<T>(json.template get<uint64_t>())
                                 : std::in_range<T>(json.template get<int64_t>());
    require(is_in_range, "number that fits");
    value = json.template get<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    require(json.is_number() || json.is_null(), "number");
    value = json.is_null() ? std::numeric_limits<T>::quiet_NaN() : json.template get<T>();
  } else if constexpr (requires { value.has_value(); }) {
    read_json(json, value.emplace(), lacking, name);
  } else if constexpr (requires { value.emplace_back(); }) {
    require(json.is_array(), "list");
    value.clear();
    for (const auto& item : json) read_json(item, value.emplace_back(), lacking, name);
  } else {
    require(json.is_object(), "object");
    visit_fields(value, [&]<typename... More>(const char* field, auto& part, const More&...) {
      constexpr bool kMayLack = kIsAmong<MayLack, More...> || kIsAmong<LeftOutWhenNew, More...>;
      const bool keeps_null = lacking == Lacking::kKeepsValue || kIsAmong<NullWhenEmpty, More...>;
      const auto found = json.find(field);
      if (found != json.end() && !(found->is_null() && keeps_null)) {
        read_json(*found, part, lacking, field);
      } else if (found == json.end() && !kMayLack && lacking == Lacking::kRefused) {
        throw InputError(fmt::format("'{}' has no '{}'", name, field));
      }
    });
  }
}

}  // namespace atl
