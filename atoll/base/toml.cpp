#include "atoll/base/toml.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/nearest.h"

namespace atl {
namespace {

std::string printed(const auto& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TomlValue plain(const toml::node& node);

TomlTable plain_table(const toml::table& table) {
  TomlTable out;
  for (const auto& [key, value] : table) out.emplace(key.str(), plain(value));
  return out;
}

TomlValue plain(const toml::node& node) {
  TomlValue out{.value = false, .line = node.source().begin.line};
  if (const toml::table* table = node.as_table()) {
    out.value = plain_table(*table);
  } else if (const toml::array* array = node.as_array()) {
    TomlList list;
    for (const toml::node& item : *array) list.push_back(plain(item));
    out.value = std::move(list);
  } else if (const auto* truth = node.as_boolean()) {
    out.value = truth->get();
  } else if (const auto* whole = node.as_integer()) {
    out.value = whole->get();
  } else if (const auto* real = node.as_floating_point()) {
    out.value = real->get();
  } else if (const auto* text = node.as_string()) {
    out.value = text->get();
  } else {
    node.visit([&](const auto& date) { out.value = TomlDate{printed(date)}; });
  }
  return out;
}

struct Show {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const {
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    const std::string digits = fmt::format("{}", value);
    return digits.find_first_of(".en") == std::string::npos ? digits + ".0" : digits;
  }
  std::string operator()(const std::string& value) const { return quoted_toml(value); }
  std::string operator()(const TomlDate& value) const { return value.text; }
  std::string operator()(const TomlList& list) const {
    std::vector<std::string> items;
    for (const TomlValue& item : list) items.push_back(item.shown());
    return items.empty() ? "[]" : fmt::format("[ {} ]", fmt::join(items, ", "));
  }
  std::string operator()(const TomlTable& table) const {
    std::vector<std::string> items;
    for (const auto& [key, value] : table) items.push_back(key + " = " + value.shown());
    return items.empty() ? "{}" : fmt::format("{{ {} }}", fmt::join(items, ", "));
  }
};

tl::unexpected<std::string> must_be(const std::string& what, const TomlValue& value) {
  return tl::unexpected(fmt::format("must be {}, not {}", what, value.shown()));
}

template <typename Range>
std::string bounds(Range range) {
  if (range.max == Range().max) return fmt::format("at least {}", range.min);
  if (range.min == Range().min) return fmt::format("at most {}", range.max);
  return fmt::format("from {} to {}", range.min, range.max);
}

}  // namespace

std::string TomlValue::shown() const { return std::visit(Show{}, value); }

TomlTable parse_toml(std::string_view text, const std::string& where) {
  try {
    return plain_table(toml::parse(text));
  } catch (const toml::parse_error& error) {
    throw UsageError(
        fmt::format("{}: {}", at_line(where, error.source().begin.line), error.description()));
  }
}

std::string quoted_toml(const std::string& text) { return printed(toml::value<std::string>(text)); }

std::string at_line(const std::string& where, int64_t line) {
  return line == 0 ? where : fmt::format("{}: line {}", where, line);
}

TomlResult<bool> truth_of(const TomlValue& value) {
  if (const auto* truth = value.get<bool>()) return *truth;
  return must_be("true or false", value);
}

TomlResult<int64_t> whole_of(const TomlValue& value, IntRange range) {
  const auto* whole = value.get<int64_t>();
  if (whole == nullptr) return must_be("a whole number", value);
  if (*whole < range.min || *whole > range.max) return must_be(bounds(range), value);
  return *whole;
}

TomlResult<double> real_of(const TomlValue& value, RealRange range) {
  const auto* whole = value.get<int64_t>();
  const auto* real = value.get<double>();
  if (whole == nullptr && real == nullptr) return must_be("a number", value);
  const double number = real != nullptr ? *real : static_cast<double>(*whole);
  if (!(number >= range.min && number <= range.max)) return must_be(bounds(range), value);
  return number;
}

TomlResult<std::string> text_of(const TomlValue& value, const std::vector<std::string>& choices) {
  const auto* text = value.get<std::string>();
  if (text == nullptr) return must_be("a text in quotes", value);
  if (choices.empty() || std::ranges::count(choices, *text) > 0) return *text;
  return tl::unexpected(
      fmt::format("must be one of {}, not '{}'", fmt::join(choices, ", "), *text));
}

TomlResult<std::vector<std::string>> texts_of(const TomlValue& value) {
  const auto* list = value.get<TomlList>();
  std::vector<std::string> texts;
  for (const TomlValue& item : list == nullptr ? TomlList{} : *list) {
    if (const auto* text = item.get<std::string>()) texts.push_back(*text);
  }
  if (list != nullptr && texts.size() == list->size()) return texts;
  return must_be("a list of texts in quotes", value);
}

TomlResult<double> quantity_of(const TomlValue& value, const QuantityRange& range) {
  if (const auto* text = value.get<std::string>()) {
    const auto number = parse_quantity(*text, range.units);
    if (number && *number >= range.min && *number <= range.max) return *number;
  }
  std::vector<std::string_view> names;
  for (const Unit& unit : range.units) names.push_back(unit.name);
  return must_be(fmt::format("a number {} with its unit ({}), as in \"{}\"",
                             range.min > 0 ? fmt::format("from {}", range.least) : "over 0",
                             fmt::join(names, ", "), range.example),
                 value);
}

const TomlList* tables_of(const TomlValue* value) {
  const auto* list = value == nullptr ? nullptr : value->get<TomlList>();
  const auto is_table = [](const TomlValue& item) { return item.get<TomlTable>() != nullptr; };
  const bool are_tables = list != nullptr && !list->empty() && std::ranges::all_of(*list, is_table);
  return are_tables ? list : nullptr;
}

TomlSection::TomlSection(const TomlTable& table, const std::vector<std::string>& keys,
                         Complain complain)
    : table_(table), complain_(std::move(complain)) {
  for (const auto& [key, value] : table) {
    if (std::ranges::count(keys, key) > 0) continue;
    const std::string near = nearest(key, keys);
    complain_(value.line, "",
              fmt::format("unknown key '{}'; {}", key,
                          near.empty() ? fmt::format("it may have {}", fmt::join(keys, ", "))
                                       : fmt::format("did you mean '{}'?", near)));
  }
}

const TomlValue* TomlSection::find(const std::string& key) const {
  const auto found = table_.find(key);
  return found == table_.end() ? nullptr : &found->second;
}

}  // namespace atl
