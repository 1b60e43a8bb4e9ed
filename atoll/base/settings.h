#pragma once
// Settings are plain structs. Each lists its fields once, in `void visit(SettingList&)`; from that
// one list come TOML files, `--section.key=value`, checks of type and range, the dump and the help.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/toml.h"

namespace atl {

/// One field of a settings struct: where it lives and what it may be.
struct Setting {
  using Field = std::variant<int64_t*, double*, bool*, std::string*, std::vector<std::string>*>;

  std::string section;
  std::string key;
  Field value;
  std::string help;
  IntRange ints{};
  RealRange reals{};
  std::vector<std::string> choices;  // Of a string; empty: any text.
  bool local = false;                // Belongs to one machine: not shared with other islands.
  bool is_unsaid = false;            // Has its default, and results that are kept do not name it.

  std::string name() const { return section + "." + key; }
  /// As TOML writes it.
  std::string text() const;
  /// "section.key=value", as apply_override() reads it.
  std::string assignment() const;
};

/// The fields of one or more structs, in order. It points into them, so they must outlive it.
class SettingList {
 public:
  /// Starts a section; the fields added next belong to it.
  void section(std::string name, std::string help);
  void add(std::string key, int64_t& value, std::string help, IntRange range = {}) {
    put(std::move(key), &value, std::move(help)).ints = range;
  }
  void add(std::string key, double& value, std::string help, RealRange range = {}) {
    put(std::move(key), &value, std::move(help)).reals = range;
  }
  void add(std::string key, std::string& value, std::string help,
           std::vector<std::string> choices = {}) {
    put(std::move(key), &value, std::move(help)).choices = std::move(choices);
  }
  /// A truth value or a list of texts.
  void add(std::string key, auto& value, std::string help) {
    put(std::move(key), &value, std::move(help));
  }
  /// Marks the field added last as belonging to one machine.
  void local() { settings_.back().local = true; }

  /// For a field that came later than results which are kept by all settings' names and values:
  /// where it has its default, theirs are those without it.
  void unsaid_if(bool is_default) { settings_.back().is_unsaid = is_default; }

  /// Sets the fields that a TOML document names. `where` (a file name) is for messages. Throws
  /// UsageError: an unknown section or key (naming the nearest), a wrong type, a value out of
  /// range. Nothing is changed when it throws.
  void apply(const TomlTable& document, const std::string& where);
  void apply_toml(std::string_view text, const std::string& where);
  /// Throws UsageError when a field has a value that a document could not give it.
  void check(const std::string& where) const;
  /// Sets one field from "section.key=value"; a string needs no quotes. Throws UsageError.
  void apply_override(std::string_view assignment);
  /// All fields as TOML; each is preceded by its help when `with_help`.
  std::string dump(bool with_help) const;
  /// name -> text of every field that is not local.
  std::map<std::string, std::string> shared() const;
  const std::vector<Setting>& settings() const { return settings_; }

 private:
  Setting& put(std::string key, Setting::Field field, std::string help);
  const Setting& find(const std::string& name, const std::string& where) const;

  std::vector<Setting> settings_;
  std::map<std::string, std::string> section_help_;
  std::string section_;
};

}  // namespace atl
