#pragma once
// Structs as JSON and back, by their lists of fields (base/fields.h): numbers, truth values, texts,
// enumerators by their names, digests in hexadecimal, other such structs, and lists, maps and
// optional ones of all these. JSON has no NaN and no infinity: they are written as null. For
// sources, not for headers: JSON takes 2 s.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/fields.h"
#include "atoll/base/hash.h"

namespace atl {

/// Of an enumeration the names_of() that argument-dependent lookup finds has the names in order.
template <typename Json = nlohmann::json, typename T>
Json json_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return names_of(value)[static_cast<size_t>(value)];
  } else if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
    return value;
  } else if constexpr (std::same_as<T, Digest>) {
    return hex(value);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? json_of<Json>(*value) : Json();
  } else if constexpr (requires { typename T::mapped_type; }) {
    Json object = Json::object();
    for (const auto& [key, item] : value) object[key] = json_of<Json>(item);
    return object;
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

/// What messages name; null: what is read as a whole.
struct FieldName {
  const char* name;

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError((name == nullptr ? "it" : fmt::format("'{}'", name)) + " " + what);
  }
  void require(bool is_so, const char* what) const {
    if (!is_so) fail(fmt::format("is no {}", what));
  }
};

/// `most` as in read_json().
template <typename T>
void read_number(const auto& json, T& value, double most, FieldName it) {
  if (most < INFINITY) {
    const double number = json.is_number() ? json.template get<double>() : -1;
    if (!(number >= 0 && number <= most)) {
      const bool has_end = most < std::numeric_limits<double>::max();
      it.fail(fmt::format("must be a number {}, not {}",
                          has_end ? fmt::format("from 0 to {:g}", most) : "of 0 or more",
                          json.dump().substr(0, 40)));
    }
  }
  if constexpr (std::same_as<T, bool>) {
    it.require(json.is_boolean(), "truth value");
    value = json.template get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    it.require(json.is_number_integer(), "whole number");
    const bool is_in_range = json.is_number_unsigned()
                                 ? std::in_range<T>(json.template get<uint64_t>())
                                 : std::in_range<T>(json.template get<int64_t>());
    it.require(is_in_range, "number that fits");
    value = json.template get<T>();
  } else {
    it.require(json.is_number() || json.is_null(), "number");
    value = json.is_null() ? std::numeric_limits<T>::quiet_NaN() : json.template get<T>();
  }
}

/// Sets `value`, which `field` names in messages and whose numbers are at most `most` (UpTo);
/// fields that it does not know are ignored. Throws InputError, after which `value` is unspecified.
template <typename T>
void read_json(const auto& json, T& value, Lacking lacking, const char* field = nullptr,
               double most = INFINITY) {
  const FieldName it{field};
  if constexpr (std::is_enum_v<T>) {
    const auto names = names_of(value);
    const auto found =
        json.is_string() ? std::ranges::find(names, json.template get<std::string>()) : names.end();
    if (found == names.end()) it.fail(fmt::format("must be one of {}", fmt::join(names, ", ")));
    value = static_cast<T>(found - names.begin());
  } else if constexpr (std::same_as<T, std::string>) {
    it.require(json.is_string(), "text");
    value = json.template get<std::string>();
  } else if constexpr (std::same_as<T, Digest>) {
    it.require(json.is_string(), "text");
    try {
      value = digest_from_hex(json.template get<std::string>());
    } catch (const InputError& error) {
      it.fail(fmt::format("is wrong: {}", error.what()));
    }
  } else if constexpr (std::is_arithmetic_v<T>) {
    read_number(json, value, most, it);
  } else if constexpr (requires { value.has_value(); }) {
    read_json(json, value.emplace(), lacking, field, most);
  } else if constexpr (requires { value.emplace_back(); }) {
    it.require(json.is_array(), "list");
    value.clear();
    for (const auto& item : json) read_json(item, value.emplace_back(), lacking, field, most);
  } else if constexpr (requires { typename T::mapped_type; }) {
    it.require(json.is_object(), "JSON object");
    value.clear();
    for (const auto& item : json.items()) {
      read_json(item.value(), value[item.key()], lacking, item.key().c_str(), most);
    }
  } else {
    it.require(json.is_object(), "JSON object");
    visit_fields(value, [&]<typename... More>(const char* name, auto& part, const More&... more) {
      constexpr bool kMayLack = kIsAmong<MayLack, More...> || kIsAmong<LeftOutWhenNew, More...>;
      const bool keeps_null = lacking == Lacking::kKeepsValue || kIsAmong<NullWhenEmpty, More...>;
      const auto found = json.find(name);
      if (found != json.end() && !(found->is_null() && keeps_null)) {
        double bound = most;
        [[maybe_unused]] const auto look = [&](const auto& tag) {
          if constexpr (requires { tag.most; }) bound = tag.most;
        };
        (look(more), ...);
        read_json(*found, part, lacking, name, bound);
      } else if (found == json.end() && !kMayLack && lacking == Lacking::kRefused) {
        it.fail(fmt::format("has no '{}'", name));
      }
    });
  }
}

/// The struct that `json` is; `where` (a file, a line) begins messages. Throws InputError.
template <typename T>
T struct_of(const auto& json, const std::string& where, Lacking lacking = Lacking::kRefused) {
  try {
    T value;
    read_json(json, value, lacking);
    return value;
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", where, error.what()));
  }
}
/// Of text that may be no JSON.
template <typename T>
T struct_in(std::string_view text, const std::string& where) {
  return struct_of<T>(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false), where);
}

}  // namespace atl
