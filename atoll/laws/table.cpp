#include "atoll/laws/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/number.h"

namespace atl::laws {
namespace {

using Optional = std::optional<double> Run::*;

struct RequiredColumn {
  const char* name;
  double Run::* value;
};
constexpr std::array kRequired = {RequiredColumn{"params", &Run::params},
                                  RequiredColumn{"replicas", &Run::replicas},
                                  RequiredColumn{"loss", &Run::loss}};

struct OptionalColumn {
  const char* name;
  Optional value;
};
constexpr std::array kOptional = {OptionalColumn{"batch", &Run::batch},
                                  OptionalColumn{"lr", &Run::lr},
                                  OptionalColumn{"outer_lr", &Run::outer_lr},
                                  OptionalColumn{"sync_every", &Run::sync_every},
                                  OptionalColumn{"tokens", &Run::tokens},
                                  OptionalColumn{"flops", &Run::flops},
                                  OptionalColumn{"layers", &Run::layers},
                                  OptionalColumn{"hidden", &Run::hidden},
                                  OptionalColumn{"ff", &Run::ff},
                                  OptionalColumn{"vocab", &Run::vocab},
                                  OptionalColumn{"seed", &Run::seed}};
constexpr std::array kShape = {"layers", "hidden", "ff", "vocab"};
constexpr std::string_view kMethod = "method";
constexpr size_t kMaxMethodLength = 64;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// A field in quotes may hold commas; a doubled quote in it stands for one.
std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      if (fields.size() > kMaxColumns) break;
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  for (std::string& field : fields) field = std::string(trimmed(field));
  return fields;
}

/// All settings of a run, its seed only where asked for.
using Settings = std::pair<std::vector<double>, std::string>;
Settings settings_of(const Run& run, bool with_seed) {
  Settings settings{{run.params, run.replicas}, run.method};
  for (const OptionalColumn& column : kOptional) {
    if (column.value == &Run::seed && !with_seed) continue;
    settings.first.push_back((run.*column.value).value_or(-1));
  }
  return settings;
}

/// What a message shows of a field.
std::string shown(std::string_view field) {
  std::string text(field.substr(0, 40));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

class Parser {
 public:
  Parser(const std::string& where, const ReadOptions& options) : where_(where), options_(options) {}

  Table parse(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = trimmed(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
      ++line_;
      if (line.empty() || line.front() == '#') continue;
      if (names_.empty()) {
        read_names(fields_of(line));
      } else {
        read_run(fields_of(line));
      }
    }
    line_ = 0;
    if (names_.empty()) fail("has no line of column names; needed are params,replicas,loss");
    if (table_.runs.empty()) fail("has column names, but no rows");
    refuse_repeated();
    for (const size_t column : unnamed_) {
      table_.ignored.push_back(fmt::format("column {}, which has no name", column));
    }
    return std::move(table_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const std::string place = line_ == 0 ? where_ : fmt::format("{}, line {}", where_, line_);
    throw InputError(fmt::format("{}: {}", place, what));
  }

  bool has(std::string_view name) const {
    return std::find(names_.begin(), names_.end(), name) != names_.end();
  }

  [[noreturn]] void fail_missing(const std::vector<std::string>& missing) const {
    constexpr size_t kMaxShown = 20;
    std::vector<std::string> found;
    for (const std::string& name : names_) {
      if (found.size() < kMaxShown) found.push_back(fmt::format("'{}'", shown(name)));
    }
    if (names_.size() > kMaxShown) found.emplace_back("...");
    std::string advice = "names are written as in params,replicas,loss";
    for (const auto& [separator, name] : {std::pair{';', "';'"}, std::pair{'\t', "a tab"}}) {
      if (names_.size() == 1 && names_[0].find(separator) != std::string::npos) {
        advice = fmt::format("columns are separated by commas, not by {}", name);
      }
    }
    fail(fmt::format("missing column{} {}; the line of names has {}; {}",
                     missing.size() > 1 ? "s" : "", fmt::join(missing, ", "),
                     fmt::join(found, ", "), advice));
  }

  void read_names(std::vector<std::string> names) {
    names_ = std::move(names);
    if (names_.size() > kMaxColumns) fail(fmt::format("more than {} columns", kMaxColumns));
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].empty()) continue;
      if (std::find(names_.begin(), names_.begin() + i, names_[i]) != names_.begin() + i) {
        fail(fmt::format("the column '{}' stands twice", shown(names_[i])));
      }
    }
    const bool counted = options_.count == Count::kPapers;
    std::vector<std::string> missing;
    for (const RequiredColumn& column : kRequired) {
      if (!has(column.name) && !(counted && column.name == kRequired[0].name)) {
        missing.emplace_back(column.name);
      }
    }
    for (const char* name : kShape) {
      if (counted && !has(name)) missing.emplace_back(name);
    }
    if (!missing.empty()) fail_missing(missing);
    for (const std::string& name : names_) {
      if (name.empty()) continue;  // Of no consequence where its cells are empty too.
      const auto known = [&](const auto& column) { return name == column.name; };
      if (std::none_of(kRequired.begin(), kRequired.end(), known) &&
          std::none_of(kOptional.begin(), kOptional.end(), known) && name != kMethod) {
        table_.ignored.push_back(shown(name));
      }
    }
  }

  double number(const std::string& name, const std::string& field) const {
    const double value = number_in<double>(field).value_or(NAN);
    if (!std::isfinite(value)) {
      fail(fmt::format("{} must be a finite number, not '{}'", name, shown(field)));
    }
    const bool may_be_zero = name == "replicas" || name == "seed";
    if (value < 0 || (value == 0 && !may_be_zero)) {
      fail(fmt::format("{} must be {}, not '{}'", name, may_be_zero ? "0 or more" : "more than 0",
                       shown(field)));
    }
    if (value != 0 && (value < 1e-30 || value > 1e30)) {
      fail(fmt::format("{} must lie between 1e-30 and 1e30, not '{}'", name, shown(field)));
    }
    if (may_be_zero && (value != std::floor(value) || value > 1e6)) {
      fail(fmt::format("{} must be a whole number to a million, not '{}'", name, shown(field)));
    }
    return value;
  }

  std::string method(const std::string& field) const {
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    };
    if (field.size() > kMaxMethodLength || !std::ranges::all_of(field, is_letter)) {
      fail(fmt::format("method must be a name of at most {} letters, as in diloco, not '{}'",
                       kMaxMethodLength, shown(field)));
    }
    return field;
  }

  void read_run(const std::vector<std::string>& fields) {
    if (table_.runs.size() == kMaxRuns) fail(fmt::format("more than {} rows", kMaxRuns));
    if (fields.size() != names_.size()) {
      fail(fmt::format("{} fields, where the first line names {} columns", fields.size(),
                       names_.size()));
    }
    Run run{.method = {}, .lines = {line_}};
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].empty() && !fields[i].empty()) unnamed_.insert(i + 1);
      for (const RequiredColumn& column : kRequired) {
        if (names_[i] != column.name) continue;
        if (fields[i].empty()) fail(fmt::format("{} is empty", names_[i]));
        run.*column.value = number(names_[i], fields[i]);
      }
      for (const OptionalColumn& column : kOptional) {
        if (names_[i] == column.name && !fields[i].empty()) {
          run.*column.value = number(names_[i], fields[i]);
        }
      }
      if (names_[i] == kMethod) run.method = method(fields[i]);
    }
    if (run.batch) *run.batch *= options_.batch_unit_tokens;
    if (options_.count == Count::kPapers) {
      for (const OptionalColumn& column : kOptional) {
        const auto is_part = [&](const char* name) {
          return std::string_view(name) == column.name;
        };
        if (std::any_of(kShape.begin(), kShape.end(), is_part) && !(run.*column.value)) {
          fail(fmt::format("{} is empty, and the papers' count needs it", column.name));
        }
      }
      run.params = papers_params(*run.layers, *run.hidden, *run.ff, *run.vocab);
    }
    table_.runs.push_back(run);
  }

  /// Two rows with all settings equal are one run told twice, or two that contradict each other.
  void refuse_repeated() {
    std::map<Settings, const Run*> seen;
    for (const Run& run : table_.runs) {
      const auto [other, is_new] = seen.emplace(settings_of(run, /*with_seed=*/true), &run);
      if (is_new) continue;
      line_ = run.lines.front();
      const size_t other_line = other->second->lines.front();
      if (other->second->loss == run.loss) fail(fmt::format("the same row as line {}", other_line));
      fail(
          fmt::format("contradicts line {}: the same settings with loss {} there and {} here; if "
                      "these are runs of different seeds, say so in a column 'seed'",
                      other_line, other->second->loss, run.loss));
    }
  }

  const std::string& where_;
  const ReadOptions options_;
  size_t line_ = 0;
  std::vector<std::string> names_;
  std::set<size_t> unnamed_;  // Columns, from 1, with cells but no name.
  Table table_;
};

/// Runs that differ in their seed alone become one with their mean loss.
std::vector<Run> seeds_averaged(const std::vector<Run>& runs) {
  std::map<Settings, size_t> places;
  std::vector<Run> means;
  for (const Run& run : runs) {
    const auto [place, is_new] =
        places.emplace(settings_of(run, /*with_seed=*/false), means.size());
    if (is_new) {
      means.push_back(run);
      means.back().seed.reset();
    } else {
      Run& mean = means[place->second];
      mean.lines.insert(mean.lines.end(), run.lines.begin(), run.lines.end());
      mean.loss += (run.loss - mean.loss) / static_cast<double>(mean.lines.size());
    }
  }
  return means;
}

/// The CSV text within what `fit --json` printed.
std::string table_in_json(const std::string& text, const std::string& where) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("table") || !json["table"].is_string()) {
    throw InputError(where +
                     ": not what `atoll scaling fit --json` prints (it has no \"table\"), "
                     "and not a CSV table");
  }
  return json["table"].get<std::string>();
}

}  // namespace

double papers_params(double layers, double hidden, double ff, double vocab) {
  return vocab * hidden + layers * (4 * hidden * hidden + 2 * hidden * ff);
}

Table parse_table(std::string_view text, const std::string& where, const ReadOptions& options) {
  if (text.size() > kMaxTableBytes) {
    throw InputError(fmt::format("{}: larger than {} MiB", where, kMaxTableBytes >> 20));
  }
  Table table = Parser(where, options).parse(text);
  table.runs = seeds_averaged(table.runs);
  return table;
}

Table read_table(const std::filesystem::path& file, const ReadOptions& options) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (!error && size > kMaxTableBytes) {
    throw InputError(fmt::format("{}: larger than {} MiB; a table of runs has a line for each",
                                 file.string(), kMaxTableBytes >> 20));
  }
  const std::string text = read_file(file);
  if (!text.starts_with('{')) {
    Table table = parse_table(text, file.string(), options);
    const auto has_batch = [](const Run& run) { return run.batch.has_value(); };
    if (options.batch_unit_tokens != 1 && std::ranges::none_of(table.runs, has_batch)) {
      throw UsageError(
          fmt::format("{}: has no batch that a batch unit could count; leave that out, or add a "
                      "column batch",
                      file.string()));
    }
    return table;
  }
  // Batches are in tokens there, and parameters are counted.
  if (options.count != Count::kColumn || options.batch_unit_tokens != 1) {
    throw UsageError(fmt::format(
        "{}: what `fit --json` printed is counted already; leave --count and --batch-unit out",
        file.string()));
  }
  return parse_table(table_in_json(text, file.string()), file.string());
}

std::string number_text(double value) {
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end};
}

std::string table_text(const std::vector<Run>& runs) {
  std::vector<OptionalColumn> columns;
  for (const OptionalColumn& column : kOptional) {
    const auto has = [&](const Run& run) { return (run.*column.value).has_value(); };
    if (std::any_of(runs.begin(), runs.end(), has)) columns.push_back(column);
  }
  std::string text = "params,replicas,loss";
  for (const OptionalColumn& column : columns) text += fmt::format(",{}", column.name);
  const bool has_method = !std::ranges::all_of(runs, &std::string::empty, &Run::method);
  if (has_method) text += fmt::format(",{}", kMethod);
  for (const Run& run : runs) {
    text += fmt::format("\n{},{},{}", number_text(run.params), number_text(run.replicas),
                        number_text(run.loss));
    for (const OptionalColumn& column : columns) {
      const std::optional<double>& value = run.*column.value;
      text += "," + (value ? number_text(*value) : "");
    }
    if (has_method) text += "," + run.method;
  }
  return text + "\n";
}

std::vector<Run> best_runs(const std::vector<Run>& runs) {
  std::map<std::pair<double, double>, const Run*> best;
  for (const Run& run : runs) {
    const Run*& place = best[{run.replicas, run.params}];
    if (place == nullptr || run.loss < place->loss) place = &run;
  }
  std::vector<Run> sorted;
  for (const auto& [key, run] : best) sorted.push_back(*run);
  return sorted;
}

}  // namespace atl::laws
