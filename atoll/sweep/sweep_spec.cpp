#include "atoll/sweep/sweep_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/settings.h"
#include "atoll/method/method.h"

namespace atl::sweep {
namespace {

constexpr size_t kMaxValues = 1000;  // Of one list.
constexpr size_t kMaxGrids = 100;

std::string text_of(const toml::node& node) {
  // The shortest digits that read the same; toml++ prints 17.
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

/// One table of the file, which may have these keys and no others.
class Section {
 public:
  Section(const toml::table& table, std::string where, const std::vector<std::string>& keys)
      : table_(table), where_(std::move(where)) {
    for (const auto& [key, node] : table_) {
      if (std::ranges::find(keys, key.str()) != keys.end()) continue;
      const std::string near = nearest(key.str(), keys);
      fail(fmt::format("unknown key '{}'; {}", key.str(),
                       near.empty() ? fmt::format("it may have {}", fmt::join(keys, ", "))
                                    : fmt::format("did you mean '{}'?", near)));
    }
  }

  [[noreturn]] void fail(const std::string& what) const { throw UsageError(where_ + ": " + what); }

  bool has(const char* key) const { return table_.contains(key); }
  const toml::node* find(const char* key) const { return table_.get(key); }

  double real(const char* key, double usual, RealRange range) const {
    const toml::node* node = find(key);
    return node == nullptr ? usual : real_of(key, *node, range);
  }
  int64_t whole(const char* key, int64_t usual, IntRange range) const {
    const toml::node* node = find(key);
    return node == nullptr ? usual : whole_of(key, *node, range);
  }
  std::string word(const char* key, const std::string& usual,
                   const std::vector<std::string>& choices) const {
    const toml::node* node = find(key);
    return node == nullptr ? usual : word_of(key, *node, choices);
  }

  /// Values that differ, in the order of the file; a single one may stand without brackets.
  std::vector<double> reals(const char* key, const toml::node& node, RealRange range) const {
    return list_of<double>(key, node,
                           [&](const toml::node& one) { return real_of(key, one, range); });
  }
  std::vector<int64_t> wholes(const char* key, const toml::node& node, IntRange range) const {
    return list_of<int64_t>(key, node,
                            [&](const toml::node& one) { return whole_of(key, one, range); });
  }
  std::vector<std::string> words(const char* key, const toml::node& node,
                                 const std::vector<std::string>& choices) const {
    return list_of<std::string>(key, node,
                                [&](const toml::node& one) { return word_of(key, one, choices); });
  }

 private:
  double real_of(const char* key, const toml::node& node, RealRange range) const {
    if (!node.is_number()) fail(fmt::format("{} must be a number, not {}", key, text_of(node)));
    const double value = *node.value<double>();
    if (!(value >= range.min && value <= range.max)) {
      fail(fmt::format("{} must be from {:g} to {:g}, not {}", key, range.min, range.max,
                       text_of(node)));
    }
    return value;
  }
  int64_t whole_of(const char* key, const toml::node& node, IntRange range) const {
    const auto value = node.value_exact<int64_t>();
    if (!value) fail(fmt::format("{} must be a whole number, not {}", key, text_of(node)));
    if (*value < range.min || *value > range.max) {
      fail(fmt::format("{} must be from {} to {}, not {}", key, range.min, range.max, *value));
    }
    return *value;
  }
  std::string word_of(const char* key, const toml::node& node,
                      const std::vector<std::string>& choices) const {
    const auto value = node.value_exact<std::string>();
    if (!value) fail(fmt::format("{} must be a text in quotes, not {}", key, text_of(node)));
    if (std::ranges::find(choices, *value) == choices.end()) {
      fail(fmt::format("{} must be one of {}, not '{}'", key, fmt::join(choices, ", "), *value));
    }
    return *value;
  }
  template <typename T>
  std::vector<T> list_of(const char* key, const toml::node& node, const auto& read) const {
    const toml::array* array = node.as_array();
    if (array == nullptr) return {read(node)};
    if (array->empty()) fail(fmt::format("{} has no value", key));
    if (array->size() > kMaxValues) fail(fmt::format("{} has over {} values", key, kMaxValues));
    std::vector<T> values;
    for (const toml::node& one : *array) {
      values.push_back(read(one));
      if (std::ranges::count(values, values.back()) > 1) {
        fail(fmt::format("{} has the value {} twice", key, text_of(one)));
      }
    }
    return values;
  }

  const toml::table& table_;
  std::string where_;
};

const toml::table& table_of(const toml::node& node, const std::string& where) {
  const toml::table* table = node.as_table();
  if (table == nullptr) throw UsageError(where + " must be a table");
  return *table;
}

std::string toml_text(const toml::table& table) {
  std::ostringstream out;
  out << table << "\n";
  return out.str();
}

constexpr RealRange kRates{.min = 1e-12, .max = 1e3};
constexpr RealRange kTokens{.min = 1, .max = 1e15};

class Reader {
 public:
  Reader(const toml::table& document, const std::string& where)
      : document_(document), where_(where) {}

  SweepSpec read() {
    const Section top(document_, where_, {"sweep", "settings", "sizes", "grid", "slurm"});
    read_sweep_section(top);
    if (const toml::node* node = top.find("settings")) {
      spec_.settings = toml_text(table_of(*node, where_ + ": settings"));
    }
    if (const toml::node* node = top.find("slurm")) {
      toml::table section;
      section.insert("slurm", table_of(*node, where_ + ": slurm"));
      spec_.slurm = toml_text(section);
    }
    read_sizes(top);
    read_grids(top);
    if (!spec_.grids.empty() && std::ranges::none_of(spec_.grids, [](const Grid& grid) {
          return grid.search == Search::kHalving;
        })) {
      for (const char* key : {"halving_rate", "halving_rungs"}) {
        if (given_.contains(key)) {
          throw UsageError(fmt::format(
              "{}: [sweep]: {} has no effect: no grid has search = \"halving\"", where_, key));
        }
      }
    }
    return std::move(spec_);
  }

 private:
  void read_sweep_section(const Section& top) {
    const toml::table none;
    const toml::node* node = top.find("sweep");
    const toml::table& table = node == nullptr ? none : table_of(*node, where_ + ": sweep");
    for (const auto& [key, value] : table) given_.emplace(key.str());
    const Section sweep(table, where_ + ": [sweep]",
                        {"tokens_per_param", "count", "extensions", "search", "halving_rate",
                         "halving_rungs", "seeds", "threads"});
    spec_.tokens_per_param = sweep.real("tokens_per_param", 20, {.min = 1e-3, .max = 1e6});
    spec_.papers_count = sweep.word("count", "all", {"all", "papers"}) == "papers";
    spec_.extensions = sweep.whole("extensions", 4, {.min = 0, .max = 100});
    search_ = search_of(sweep.word("search", "grid", kSearches));
    spec_.halving_rate = sweep.whole("halving_rate", 2, {.min = 2, .max = 100});
    spec_.halving_rungs = sweep.whole("halving_rungs", 3, {.min = 2, .max = 10});
    if (const toml::node* seeds = sweep.find("seeds"))
      seeds_ = sweep.wholes("seeds", *seeds, kSeeds);
    spec_.threads = sweep.whole("threads", 1, {.min = 1, .max = 4096});
  }

  void read_sizes(const Section& top) {
    const toml::node* node = top.find("sizes");
    if (node == nullptr) {
      top.fail(
          "no [sizes.NAME]; each names the model settings of one size, as in hidden_size = 64");
    }
    for (const auto& [key, value] : table_of(*node, where_ + ": sizes")) {
      const std::string name(key.str());
      const std::string where = fmt::format("{}: [sizes.{}]", where_, name);
      require_name(name, where);
      toml::table section;
      section.insert("model", table_of(value, where));
      spec_.sizes.push_back({name, toml_text(section)});
    }
    if (spec_.sizes.empty()) top.fail("[sizes] is empty");
  }

  void read_grids(const Section& top) {
    const toml::node* node = top.find("grid");
    const toml::array* grids = node == nullptr ? nullptr : node->as_array();
    if (grids == nullptr || grids->empty() || !grids->is_array_of_tables()) {
      top.fail(
          "no [[grid]]; each names what is swept: sizes, replicas, lr, outer_lr, batch_tokens");
    }
    if (grids->size() > kMaxGrids) top.fail(fmt::format("over {} grids", kMaxGrids));
    for (const toml::node& one : *grids) {
      read_grid(*one.as_table(), fmt::format("{}: [[grid]] {}", where_, spec_.grids.size() + 1));
    }
  }

  void read_grid(const toml::table& table, std::string where) {
    Grid grid;
    const toml::node* name = table.get("name");
    if (name == nullptr || !name->is_string()) {
      throw UsageError(where + ": it needs a name, as in name = \"lr\"");
    }
    grid.name = *name->value<std::string>();
    require_name(grid.name, where);
    where = fmt::format("{}: grid '{}'", where_, grid.name);
    const Section section(table, where,
                          {"name", "sizes", "replicas", "method", "sync_every", "tokens_factor",
                           "lr", "outer_lr", "batch_tokens", "search", "start", "seeds"});
    if (std::ranges::find(spec_.grids, grid.name, &Grid::name) != spec_.grids.end()) {
      section.fail("a second grid of that name");
    }
    std::vector<std::string> size_names;
    for (const Size& size : spec_.sizes) size_names.push_back(size.name);
    const toml::node* sizes = section.find("sizes");
    grid.sizes = sizes == nullptr ? size_names : section.words("sizes", *sizes, size_names);
    const toml::node* replicas = section.find("replicas");
    if (replicas == nullptr) section.fail("it needs replicas, as in replicas = [0, 1, 2]");
    grid.replicas = section.wholes("replicas", *replicas, {.min = 0, .max = 1024});
    read_methods(section, grid);
    const toml::node* factors = section.find("tokens_factor");
    grid.tokens_factors = {1};
    if (factors != nullptr) {
      grid.tokens_factors = section.reals("tokens_factor", *factors, {.min = 1e-3, .max = 1e6});
    }
    read_axes(section, grid);
    grid.search = search_;
    if (section.has("search")) grid.search = search_of(section.word("search", "", kSearches));
    read_start(section, grid);
    grid.seeds = seeds_;
    if (const toml::node* seeds = section.find("seeds")) {
      grid.seeds = section.wholes("seeds", *seeds, kSeeds);
    }
    double num_points = 1;
    for (const size_t values : {grid.sizes.size(), grid.replicas.size(), grid.methods.size(),
                                grid.sync_every.size(), grid.tokens_factors.size(),
                                grid.axes[kLr].values.size(), grid.axes[kOuterLr].values.size(),
                                grid.axes[kBatchTokens].values.size(), grid.seeds.size()}) {
      num_points *= static_cast<double>(std::max<size_t>(1, values));
    }
    if (num_points > kMaxGridPoints) {
      section.fail(
          fmt::format("its lists make {:.0f} points, and {:.0f} is the most; make them shorter",
                      num_points, kMaxGridPoints));
    }
    spec_.grids.push_back(std::move(grid));
  }

  static void read_start(const Section& section, Grid& grid) {
    if (!section.has("start")) return;
    if (grid.search != Search::kDescent) {
      section.fail(
          "start has no effect: search is not \"descent\"; make it that, or leave start out");
    }
    if (std::ranges::none_of(grid.axes,
                             [](const AxisValues& axis) { return axis.values.size() > 1; })) {
      section.fail("start has no effect: lr, outer_lr and batch_tokens have one value each");
    }
    grid.starts_at_size_before = section.word("start", "", {"middle", "size_before"}) != "middle";
    if (grid.starts_at_size_before && (!section.has("sizes") || grid.sizes.size() < 2)) {
      section.fail(
          "start = \"size_before\" needs the order of the sizes; list two or more of them, "
          "the smallest first, as in sizes = [\"a\", \"b\"]");
    }
  }

  static void read_methods(const Section& section, Grid& grid) {
    std::vector<std::string> choices;
    for (const method::Method& method : method::methods()) {
      if (!method.is_for_one) choices.emplace_back(method.name);
    }
    const bool has_replicas =
        std::ranges::any_of(grid.replicas, [](int64_t replicas) { return replicas > 0; });
    grid.methods = {"diloco"};
    if (const toml::node* node = section.find("method")) {
      if (!has_replicas)
        section.fail("method has no effect with replicas = 0, which is data-parallel");
      grid.methods = section.words("method", *node, choices);
    }
    const auto uses = [&](std::string_view field) {
      return has_replicas && std::ranges::any_of(grid.methods, [&](const std::string& name) {
               return method::method_of({.method = name}).uses(field);
             });
    };
    for (const char* field : {"sync_every", "outer_lr"}) {
      const bool is_given = section.has(field);
      if (is_given && !uses(field)) {
        section.fail(fmt::format("{} has no effect: no method of this grid uses it", field));
      }
      if (!is_given && uses(field)) {
        section.fail(fmt::format("it needs {}, which its replicas' method uses", field));
      }
    }
    if (const toml::node* node = section.find("sync_every")) {
      grid.sync_every = section.wholes("sync_every", *node, {.min = 1, .max = 1'000'000'000});
    }
  }

  void read_axes(const Section& section, Grid& grid) const {
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      const char* name = kAxisNames[axis];
      const toml::node* node = section.find(name);
      if (node == nullptr) {
        if (axis == kOuterLr) continue;  // read_methods() has seen that no method uses it.
        section.fail(fmt::format("it needs {}: values, or \"best\" for an earlier grid's", name));
      }
      if (const auto word = node->value_exact<std::string>()) {
        if (*word != "best") {
          section.fail(fmt::format("{} must be numbers or \"best\", not '{}'", name, *word));
        }
        if (spec_.grids.empty()) {
          section.fail(
              fmt::format("{} = \"best\" needs an earlier grid, and this is the first", name));
        }
        grid.axes[axis].is_best = true;
        continue;
      }
      std::vector<double>& values = grid.axes[axis].values;
      values = section.reals(name, *node, axis == kBatchTokens ? kTokens : kRates);
      std::ranges::sort(values);
      if (axis != kBatchTokens) continue;
      for (const double value : values) {
        if (value != std::floor(value)) {
          section.fail(fmt::format("batch_tokens must be whole numbers, not {:g}", value));
        }
      }
    }
  }

  static void require_name(const std::string& name, const std::string& where) {
    constexpr const char* kAllowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    if (name.empty() || name.size() > 40 || name.find_first_not_of(kAllowed) != std::string::npos) {
      throw UsageError(fmt::format(
          "{}: a name has 1 to 40 letters, digits, dots, dashes and underscores", where));
    }
  }

  static Search search_of(const std::string& name) {
    return static_cast<Search>(std::ranges::find(kSearches, name) - kSearches.begin());
  }

  static constexpr IntRange kSeeds{.min = 0, .max = 1'000'000'000};
  static inline const std::vector<std::string> kSearches = {"grid", "descent", "halving"};

  const toml::table& document_;
  const std::string& where_;
  SweepSpec spec_;
  Search search_ = Search::kGrid;
  std::vector<int64_t> seeds_ = {1};
  std::set<std::string> given_;  // Keys of [sweep].
};

}  // namespace

std::string search_name(Search search) {
  constexpr const char* kNames[] = {"grid", "descent", "halving"};
  return kNames[static_cast<size_t>(search)];
}

SweepSpec parse_sweep(std::string_view text, const std::string& where) {
  if (text.size() > kMaxSweepBytes) {
    throw UsageError(fmt::format("{}: larger than {} MiB", where, kMaxSweepBytes >> 20));
  }
  toml::table document;
  try {
    document = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw UsageError(
        fmt::format("{}: line {}: {}", where, error.source().begin.line, error.description()));
  }
  return Reader(document, where).read();
}

SweepSpec read_sweep(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (!error && size > kMaxSweepBytes) {
    throw UsageError(fmt::format("{}: larger than {} MiB; a sweep is a page of settings",
                                 file.string(), kMaxSweepBytes >> 20));
  }
  return parse_sweep(read_file(file), file.string());
}

}  // namespace atl::sweep
