#include "atoll/base/settings.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <sstream>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[b.size()];
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

/// Writes a TOML value into a field, or throws.
class Assign {
 public:
  Assign(Setting& setting, const toml::node& node, const std::string& where)
      : setting_(setting), node_(node), where_(where) {}

  void operator()(int64_t* target) const {
    const auto value = node_.value_exact<int64_t>();
    if (!value) fail("a whole number");
    if (*value < setting_.ints.min || *value > setting_.ints.max) fail_range();
    *target = *value;
  }
  void operator()(double* target) const {
    if (!node_.is_number()) fail("a number");
    const double value = *node_.value<double>();
    if (!(value >= setting_.reals.min && value <= setting_.reals.max)) fail_range();
    *target = value;
  }
  void operator()(bool* target) const {
    const auto value = node_.value_exact<bool>();
    if (!value) fail("true or false");
    *target = *value;
  }
  void operator()(std::string* target) const {
    const auto value = node_.value_exact<std::string>();
    if (!value) fail("a text in quotes");
    const auto& choices = setting_.choices;
    if (!choices.empty() && std::ranges::find(choices, *value) == choices.end()) {
      throw UsageError(fmt::format("{}: '{}' must be one of {}, not '{}'", where_, setting_.name(),
                                   fmt::join(choices, ", "), *value));
    }
    *target = *value;
  }

 private:
  std::string shown() const {
    std::ostringstream out;
    node_.visit([&](const auto& node) { out << node; });
    return out.str();
  }
  [[noreturn]] void fail(const char* wanted) const {
    throw UsageError(
        fmt::format("{}: '{}' must be {}, not {}", where_, setting_.name(), wanted, shown()));
  }
  [[noreturn]] void fail_range() const {
    const auto bounds = [](auto min, auto max, auto lowest, auto highest) {
      if (max == highest) return fmt::format("at least {}", min);
      if (min == lowest) return fmt::format("at most {}", max);
      return fmt::format("from {} to {}", min, max);
    };
    constexpr RealRange kAll;
    constexpr IntRange kAllInts;
    const std::string range =
        std::holds_alternative<int64_t*>(setting_.value)
            ? bounds(setting_.ints.min, setting_.ints.max, kAllInts.min, kAllInts.max)
            : bounds(setting_.reals.min, setting_.reals.max, kAll.min, kAll.max);
    throw UsageError(
        fmt::format("{}: '{}' must be {}, not {}", where_, setting_.name(), range, shown()));
  }

  Setting& setting_;
  const toml::node& node_;
  const std::string& where_;
};

toml::table parse(std::string_view text, const std::string& where) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw UsageError(
        fmt::format("{}: line {}: {}", where, error.source().begin.line, error.description()));
  }
}

}  // namespace

std::string Setting::text() const {
  struct Print {
    std::string operator()(const int64_t* v) const { return fmt::format("{}", *v); }
    std::string operator()(const double* v) const {
      if (std::isinf(*v)) return *v > 0 ? "inf" : "-inf";
      const std::string digits = fmt::format("{}", *v);
      return digits.find_first_of(".en") == std::string::npos ? digits + ".0" : digits;
    }
    std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
    std::string operator()(const std::string* v) const { return quoted(*v); }
  };
  return std::visit(Print{}, value);
}

std::string Setting::assignment() const {
  const auto* const string = std::get_if<std::string*>(&value);
  return name() + "=" + (string != nullptr ? **string : text());
}

void SettingList::section(std::string name, std::string help) {
  section_help_[name] = std::move(help);
  section_ = std::move(name);
}

void SettingList::add(std::string key, int64_t& value, std::string help, IntRange range) {
  settings_.push_back({.section = section_,
                       .key = std::move(key),
                       .value = &value,
                       .help = std::move(help),
                       .ints = range});
}
void SettingList::add(std::string key, double& value, std::string help, RealRange range) {
  settings_.push_back({.section = section_,
                       .key = std::move(key),
                       .value = &value,
                       .help = std::move(help),
                       .reals = range});
}
void SettingList::add(std::string key, bool& value, std::string help) {
  settings_.push_back(
      {.section = section_, .key = std::move(key), .value = &value, .help = std::move(help)});
}
void SettingList::add(std::string key, std::string& value, std::string help,
                      std::vector<std::string> choices) {
  settings_.push_back({.section = section_,
                       .key = std::move(key),
                       .value = &value,
                       .help = std::move(help),
                       .choices = std::move(choices)});
}

Setting& SettingList::find(const std::string& name, const std::string& where) {
  const auto found = std::ranges::find(settings_, name, &Setting::name);
  if (found != settings_.end()) return *found;
  std::vector<std::string> names;
  for (const Setting& setting : settings_) {
    names.push_back(setting.name());
    // A right key in the wrong section is nearer than any misspelling.
    if (name.ends_with("." + setting.key)) {
      throw UsageError(
          fmt::format("{}: unknown setting '{}'; did you mean '{}'?", where, name, setting.name()));
    }
  }
  const std::string near = nearest(name, names);
  throw UsageError(fmt::format("{}: unknown setting '{}'{}", where, name,
                               near.empty() ? "; `atoll train --dump-config` lists them all"
                                            : "; did you mean '" + near + "'?"));
}

void SettingList::apply_toml(std::string_view text, const std::string& where) {
  const toml::table document = parse(text, where);
  // First into copies: a wrong last line must not leave the first ones applied.
  std::vector<std::pair<Setting*, const toml::node*>> assignments;
  for (const auto& [section, node] : document) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      throw UsageError(fmt::format("{}: '{}' must be inside a [section]", where, section.str()));
    }
    for (const auto& [key, value] : *table) {
      if (value.is_table()) {
        throw UsageError(
            fmt::format("{}: '{}.{}' is a table, and sections do not nest; settings "
                        "are [section] and key = value",
                        where, section.str(), key.str()));
      }
      assignments.emplace_back(&find(fmt::format("{}.{}", section.str(), key.str()), where),
                               &value);
    }
  }
  for (const auto& [setting, node] : assignments) {  // A rehearsal on spare values.
    int64_t spare_int = 0;
    double spare_real = 0;
    bool spare_bool = false;
    std::string spare_text;
    Setting rehearsal = *setting;
    std::visit(
        [&](auto* target) {
          using T = std::remove_pointer_t<decltype(target)>;
          if constexpr (std::is_same_v<T, int64_t>) rehearsal.value = &spare_int;
          if constexpr (std::is_same_v<T, double>) rehearsal.value = &spare_real;
          if constexpr (std::is_same_v<T, bool>) rehearsal.value = &spare_bool;
          if constexpr (std::is_same_v<T, std::string>) rehearsal.value = &spare_text;
        },
        setting->value);
    std::visit(Assign(rehearsal, *node, where), rehearsal.value);
  }
  for (const auto& [setting, node] : assignments) {
    std::visit(Assign(*setting, *node, where), setting->value);
  }
}

void SettingList::apply_override(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    throw UsageError(fmt::format("'--{}' needs a value: --section.key=value", assignment));
  }
  const std::string name(assignment.substr(0, equals));
  const std::string value(assignment.substr(equals + 1));
  const std::string where = "command line";
  Setting& setting = find(name, where);
  const bool is_text = std::holds_alternative<std::string*>(setting.value);
  toml::table table;
  try {
    table = toml::parse("value = " + (is_text ? quoted(value) : value));
  } catch (const toml::parse_error&) {
    table.insert_or_assign("value", value);  // Not a number or a truth value: Assign says so.
  }
  std::visit(Assign(setting, *table.get("value"), where), setting.value);
}

std::string SettingList::dump(bool with_help) const {
  std::string out;
  std::string section;
  for (const Setting& setting : settings_) {
    if (setting.section != section) {
      section = setting.section;
      out += fmt::format("{}[{}]{}\n", out.empty() ? "" : "\n", section,
                         with_help ? "  # " + section_help_.at(section) : "");
    }
    if (with_help) out += fmt::format("# {}\n", setting.help);
    out += fmt::format("{} = {}\n", setting.key, setting.text());
  }
  return out;
}

std::map<std::string, std::string> SettingList::shared() const {
  std::map<std::string, std::string> out;
  for (const Setting& setting : settings_) {
    if (!setting.local) out[setting.name()] = setting.text();
  }
  return out;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(3, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace atl
