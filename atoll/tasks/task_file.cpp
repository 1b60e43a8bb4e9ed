#include "atoll/tasks/task_file.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/number.h"
#include "atoll/tasks/python_functions.h"
#include "atoll/text/json_text.h"
#include "atoll/text/utf8.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr size_t kMaxDepth = 60;
constexpr int64_t kMaxValues = 1 << 20;  // An alias repeats what it names; this bounds the whole.

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool all_of(std::string_view text, std::string_view characters) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

constexpr std::string_view kDigits = "0123456789_";

std::string without_underscores(std::string_view text) {
  std::string digits(text);
  std::erase(digits, '_');
  return digits;
}

/// Sign, then 0b1, 0x1f, 017 (octal) or 19; nothing if the word is none of them or too large.
std::optional<int64_t> whole_number(std::string_view word) {
  const bool is_negative = word.starts_with('-');
  if (is_negative || word.starts_with('+')) word.remove_prefix(1);
  int base = 10;
  if (word.starts_with("0b")) {
    base = 2;
  } else if (word.starts_with("0x")) {
    base = 16;
  } else if (word.size() > 1 && word.starts_with('0')) {
    base = 8;
  }
  if (base == 2 || base == 16) word.remove_prefix(2);
  if (word.empty() || (base == 10 && word.starts_with('_'))) return std::nullopt;
  const auto value = number_in<int64_t>(without_underscores(word), base);
  return value && is_negative ? -*value : value;
}

/// YAML 1.1 asks for a point, and for a sign in the exponent: 1e5 is a string there.
std::optional<double> broken_number(std::string_view word) {
  double sign = 1;
  std::string_view rest = word;
  if (rest.starts_with('-')) sign = -1;
  if (rest.starts_with('-') || rest.starts_with('+')) rest.remove_prefix(1);
  if (is_one_of(rest, {".inf", ".Inf", ".INF"})) {
    return sign * std::numeric_limits<double>::infinity();
  }
  if (is_one_of(word, {".nan", ".NaN", ".NAN"})) return std::numeric_limits<double>::quiet_NaN();
  const size_t point = rest.find('.');
  if (point == std::string_view::npos) return std::nullopt;
  const size_t exponent = std::min(rest.find_first_of("eE"), rest.size());
  if (exponent < point) return std::nullopt;
  const std::string_view before = rest.substr(0, point);
  const std::string_view behind = rest.substr(point + 1, exponent - point - 1);
  if (before.empty() ? (behind.empty() || behind[0] == '_') : before[0] == '_') return std::nullopt;
  if (!(before.empty() || all_of(before, kDigits)) ||
      !(behind.empty() || all_of(behind, kDigits))) {
    return std::nullopt;
  }
  if (exponent < rest.size()) {
    const std::string_view power = rest.substr(exponent + 1);
    if (power.size() < 2 || (power[0] != '+' && power[0] != '-') ||
        !all_of(power.substr(1), "0123456789")) {
      return std::nullopt;
    }
  }
  std::string digits = without_underscores(rest);
  if (digits.starts_with('.')) digits.insert(0, "0");
  const size_t plus = digits.find('+');
  if (plus != std::string::npos) digits.erase(plus, 1);
  const auto value = number_in<double>(digits);
  return value ? std::optional(sign * *value) : std::nullopt;
}

/// 2001-12-14 and 190:20:30, of which YAML 1.1 makes a date and a number to the base 60.
bool is_date_or_sexagesimal(std::string_view word) {
  if (word.size() >= 8 && all_of(word.substr(0, 4), "0123456789") && word[4] == '-') return true;
  if (word.starts_with('-') || word.starts_with('+')) word.remove_prefix(1);
  return word.find(':') != std::string_view::npos && all_of(word, "0123456789_:.");
}

/// Makes one value of a document as the parser goes through it: so depth and size are bounded
/// before anything is kept.
class YamlReader : public YAML::EventHandler {
 public:
  explicit YamlReader(const std::string& name) : name_(name) {}

  Json take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (has_document_) fail(mark, "a second document");
    has_document_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (wants_key()) fail(mark, "a key that is no word");
    add(mark, nullptr, 1, anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end() || wants_key())
      fail(mark, "an alias that names no value before it");
    add(mark, found->second.value, found->second.num_values, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (text::valid_utf8_prefix(value) != value.size()) fail(mark, "text that is not UTF-8");
    if (tag == "!function" && !wants_key()) {  // What it is, is asked when a task is read.
      add(mark, function_value(value, fs::path(name_).parent_path()), 1, anchor);
      return;
    }
    check_tag(mark, tag);
    if (!wants_key()) {
      add(mark, tag == "?" ? meaning(mark, value) : Json(value), 1, anchor);
      return;
    }
    if (value == "<<") fail(mark, "merging with << is not supported; use include");
    if (open_.back().value.contains(value)) fail(mark, fmt::format("\"{}\" is there twice", value));
    open_.back().key = value;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    begin(mark, tag, Json::array(), anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    begin(mark, tag, Json::object(), anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapEnd() override { end(); }

 private:
  /// A list or a mapping whose end has not come.
  struct Level {
    Json value;
    std::optional<std::string> key;  // Of a mapping: that of the value to come.
    YAML::anchor_t anchor = 0;
    YAML::Mark mark;
    int64_t num_before = 0;
  };
  struct Anchored {
    Json value;
    int64_t num_values = 0;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw InputError(fmt::format("'{}', line {}: {}", name_, mark.line + 1, what));
  }

  bool wants_key() const {
    return !open_.empty() && open_.back().value.is_object() && !open_.back().key;
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    static constexpr std::string_view kText = "tag:yaml.org,2002:str";
    if (!is_one_of(tag, {"", "?", "!", kText})) {
      fail(mark, fmt::format("the tag {} is not supported", tag));
    }
  }

  void begin(const YAML::Mark& mark, const std::string& tag, Json empty, YAML::anchor_t anchor) {
    check_tag(mark, tag);
    if (wants_key()) fail(mark, "a key that is no word");
    if (open_.size() >= kMaxDepth) fail(mark, "nested too deep");
    open_.push_back({.value = std::move(empty),
                     .key = {},
                     .anchor = anchor,
                     .mark = mark,
                     .num_before = num_values_});
  }

  void end() {
    Level level = std::move(open_.back());
    open_.pop_back();
    const int64_t inside = num_values_ - level.num_before;
    num_values_ = level.num_before;
    add(level.mark, std::move(level.value), inside + 1, level.anchor);
  }

  void add(const YAML::Mark& mark, Json value, int64_t num_values, YAML::anchor_t anchor) {
    num_values_ += num_values;
    if (num_values_ > kMaxValues) fail(mark, fmt::format("more than {} values", kMaxValues));
    if (anchor != 0) anchors_[anchor] = {value, num_values};
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().key) {
      open_.back().value[*std::exchange(open_.back().key, {})] = std::move(value);
    } else {
      open_.back().value.push_back(std::move(value));
    }
  }

  /// What YAML 1.1 makes of a word without quotes.
  Json meaning(const YAML::Mark& mark, const std::string& word) const {
    if (is_one_of(word, {"", "~", "null", "Null", "NULL"})) return nullptr;
    if (is_one_of(word, {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) {
      return true;
    }
    if (is_one_of(word, {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) {
      return false;
    }
    if (const auto value = whole_number(word)) return *value;
    if (const auto value = broken_number(word)) return *value;
    if (is_date_or_sexagesimal(word)) {
      fail(mark, fmt::format("{} is a date or a time to YAML; put it in quotes", word));
    }
    return word;
  }

  const std::string& name_;
  bool has_document_ = false;
  Json root_;
  std::vector<Level> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  int64_t num_values_ = 0;
};

/// `open`: the files that include this one.
Json read_with_includes(const fs::path& file, std::vector<fs::path>& open) {
  std::error_code missing;  // Which read_file() tells of.
  const fs::path path = fs::weakly_canonical(file, missing);
  if (std::ranges::find(open, path) != open.end()) {
    throw InputError(fmt::format("'{}' includes itself", path.string()));
  }
  const std::string name = file.string();
  if (std::error_code ignored; fs::file_size(file, ignored) > kMaxFileBytes && !ignored) {
    throw InputError(
        fmt::format("'{}' has more than {} bytes: not a task file", name, kMaxFileBytes));
  }
  const std::string text = read_file(file);
  Json settings = file.extension() == ".json"
                      ? text::parse_json<Json>(text, fmt::format("'{}'", name))
                      : parse_task_yaml(text, name);
  if (!settings.is_object()) throw InputError(fmt::format("'{}' is not an object", name));
  if (!settings.contains("include")) return settings;
  Json includes = settings["include"];
  settings.erase("include");
  if (includes.is_string()) includes = Json::array({includes});
  Json merged = Json::object();
  open.push_back(path);
  for (const Json& include : includes) {
    if (!include.is_string()) {
      throw InputError(fmt::format("'{}': \"include\" is not the name of a file", name));
    }
    const Json more = read_with_includes(file.parent_path() / include.get<std::string>(), open);
    for (const auto& [key, value] : more.items()) merged[key] = value;
  }
  open.pop_back();
  for (const auto& [key, value] : settings.items()) merged[key] = value;
  return merged;
}

}  // namespace

Json parse_task_yaml(std::string_view text, const std::string& name) {
  if (text.size() > kMaxFileBytes) {
    throw InputError(
        fmt::format("'{}' has more than {} bytes: not a task file", name, kMaxFileBytes));
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    YamlReader reader(name);
    while (parser.HandleNextDocument(reader)) continue;
    Json settings = reader.take();
    if (!settings.is_object()) {
      throw InputError(fmt::format("'{}' is not a YAML mapping (key: value, ...)", name));
    }
    return settings;
  } catch (const YAML::Exception& error) {
    throw InputError(
        fmt::format("'{}', line {}: not valid YAML: {}", name, error.mark.line + 1, error.msg));
  }
}

Json read_task_file(const fs::path& file) {
  std::vector<fs::path> open;
  return read_with_includes(file, open);
}

}  // namespace atl::tasks
