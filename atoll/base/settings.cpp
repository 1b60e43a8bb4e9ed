#include "atoll/base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/nearest.h"

namespace atl {
namespace {

/// What the field has now.
TomlValue value_of(const Setting& setting) {
  return std::visit(
      [](const auto* field) {
        using T = std::remove_cvref_t<decltype(*field)>;
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          TomlList list;
          for (const std::string& text : *field) list.push_back({.value = text});
          return TomlValue{.value = std::move(list)};
        } else {
          return TomlValue{.value = *field};
        }
      },
      setting.value);
}

/// Puts the value into the field when it is called; throws where the field may not have it.
std::function<void()> assign(const Setting& setting, const TomlValue& value,
                             const std::string& where) {
  const auto checked = [&](auto* field, auto result) -> std::function<void()> {
    if (result) return [field, to = *std::move(result)] { *field = to; };
    throw UsageError(
        fmt::format("{}: '{}' {}", at_line(where, value.line), setting.name(), result.error()));
  };
  struct Read {
    auto operator()(const bool*) const { return truth_of(value); }
    auto operator()(const int64_t*) const { return whole_of(value, setting.ints); }
    auto operator()(const double*) const { return real_of(value, setting.reals); }
    auto operator()(const std::string*) const { return text_of(value, setting.choices); }
    auto operator()(const std::vector<std::string>*) const { return texts_of(value); }
    const Setting& setting;
    const TomlValue& value;
  };
  return std::visit(
      [&](auto* field) { return checked(field, Read{.setting = setting, .value = value}(field)); },
      setting.value);
}

}  // namespace

std::string Setting::text() const { return value_of(*this).shown(); }

std::string Setting::assignment() const {
  const auto* const string = std::get_if<std::string*>(&value);
  return name() + "=" + (string != nullptr ? **string : text());
}

void SettingList::section(std::string name, std::string help) {
  section_help_[name] = std::move(help);
  section_ = std::move(name);
}

Setting& SettingList::put(std::string key, Setting::Field field, std::string help) {
  settings_.push_back({section_, std::move(key), field, std::move(help)});
  return settings_.back();
}

const Setting& SettingList::find(const std::string& name, const std::string& where) const {
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

void SettingList::apply(const TomlTable& document, const std::string& where) {
  // All is checked first: a wrong last line must not leave the first ones applied.
  std::vector<std::function<void()>> assignments;
  for (const auto& [section, content] : document) {
    const auto* table = content.get<TomlTable>();
    if (table == nullptr) {
      throw UsageError(fmt::format("{}: '{}' must be inside a [section]",
                                   at_line(where, content.line), section));
    }
    for (const auto& [key, value] : *table) {
      const std::string name = section + "." + key;
      const std::string here = at_line(where, value.line);
      if (value.get<TomlTable>() != nullptr) {
        throw UsageError(
            fmt::format("{}: '{}' is a table, and sections do not nest; settings "
                        "are [section] and key = value",
                        here, name));
      }
      assignments.push_back(assign(find(name, here), value, where));
    }
  }
  for (const auto& assignment : assignments) assignment();
}

void SettingList::apply_toml(std::string_view text, const std::string& where) {
  apply(parse_toml(text, where), where);
}

void SettingList::check(const std::string& where) const {
  for (const Setting& setting : settings_) assign(setting, value_of(setting), where);
}

void SettingList::apply_override(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    throw UsageError(fmt::format("'--{}' needs a value: --section.key=value", assignment));
  }
  const std::string where = "command line";
  const Setting& setting = find(std::string(assignment.substr(0, equals)), where);
  TomlValue value{.value = std::string(assignment.substr(equals + 1))};
  if (!std::holds_alternative<std::string*>(setting.value)) {
    try {
      value = parse_toml(fmt::format("value = {}", *value.get<std::string>()), where).at("value");
      value.line = 0;
    } catch (const UsageError&) {  // Not a number or a truth value: assign() says so.
    }
  }
  assign(setting, value, where)();
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

}  // namespace atl
