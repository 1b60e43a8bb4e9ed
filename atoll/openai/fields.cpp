#include "atoll/openai/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/json_text.h"
#include "atoll/text/utf8.h"

namespace atl::openai {
namespace {

constexpr int kMaxDepth = 64;

/// Of lists and objects in each other, before any are made.
bool is_too_deep(std::string_view json) {
  int depth = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (is_in_text) {
      if (c == '\\') ++i;
      is_in_text = c != '"';
    } else if (c == '"') {
      is_in_text = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Json parse_body(std::string_view body) {
  if (text::valid_utf8_prefix(body) != body.size()) refuse("", "the body is not UTF-8");
  if (is_too_deep(body)) {
    refuse("", fmt::format("the body nests lists and objects deeper than {}", kMaxDepth));
  }
  Json json;
  try {
    std::string repaired(body);
    text::repair_surrogates(repaired);
    json = text::parse_json<Json>(repaired, "the body");
  } catch (const InputError& error) {
    refuse("", error.what());
  }
  if (!json.is_object()) refuse("", "the body is not a JSON object");
  return json;
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    refuse(where_.substr(0, where_.size() - 1),
           fmt::format("'{}' must be an object", where_.substr(0, where_.size() - 1)));
  }
}

const Json* Fields::find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::required(const std::string& name) {
  const Json* json = find(name);
  if (json == nullptr) refuse(name_of(name), fmt::format("'{}' is missing", name_of(name)));
  return *json;
}

std::optional<std::string> Fields::text(const std::string& name) {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  if (!json->is_string()) {
    refuse(name_of(name), fmt::format("'{}' must be a text", name_of(name)));
  }
  return json->get<std::string>();
}

std::string Fields::required_text(const std::string& name) {
  required(name);
  return *text(name);
}

bool Fields::flag(const std::string& name, bool otherwise) {
  const Json* json = find(name);
  if (json == nullptr) return otherwise;
  if (!json->is_boolean()) {
    refuse(name_of(name), fmt::format("'{}' must be true or false", name_of(name)));
  }
  return json->get<bool>();
}

std::optional<int64_t> whole_in(const Json& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<uint64_t>();
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(value);
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  if (!json.is_number_float()) return std::nullopt;
  const auto value = json.get<double>();
  if (std::abs(value) > 1e15 || value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<int64_t> Fields::whole(const std::string& name, int64_t least, int64_t most) {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  const auto value = whole_in(*json);
  if (!value || *value < least || *value > most) {
    refuse(name_of(name),
           fmt::format("'{}' must be a whole number from {} to {}", name_of(name), least, most));
  }
  return value;
}

std::optional<double> Fields::number(const std::string& name, double least, double most) {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  const double value = json->is_number() ? json->get<double>() : std::nan("");
  if (!(value >= least && value <= most)) {
    refuse(name_of(name),
           fmt::format("'{}' must be a number from {} to {}", name_of(name), least, most));
  }
  return value;
}

void Fields::pass_over(std::initializer_list<const char*> names) {
  for (const char* name : names) known_.insert(name);
}

void Fields::refuse_if_there(const std::string& name, std::initializer_list<Json> allowed) {
  const Json* json = find(name);
  if (json == nullptr || std::ranges::find(allowed, *json) != allowed.end()) return;
  refuse(name_of(name), fmt::format("'{}' is not supported", name_of(name)), "unsupported");
}

void Fields::refuse_unknown() const {
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) {
      refuse(name_of(name), fmt::format("'{}' is not a field of this request", name_of(name)),
             "unknown_field");
    }
  }
}

}  // namespace atl::openai
