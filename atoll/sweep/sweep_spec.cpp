#include "atoll/sweep/sweep_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/toml.h"
#include "atoll/method/method.h"

namespace atl::sweep {
namespace {

constexpr size_t kMaxValues = 1000;  // Of one list.
constexpr size_t kMaxGrids = 100;

/// One table of the file.
class Section : public TomlSection {
 public:
  Section(const TomlTable& table, const std::string& where, const std::vector<std::string>& keys)
      : TomlSection(table, keys,
                    [where](int64_t line, const std::string& key, const std::string& what) {
                      throw UsageError(fmt::format("{}: {}{}{}", at_line(where, line), key,
                                                   key.empty() ? "" : " ", what));
                    }),
        where_(where) {}

  [[noreturn]] void fail(const std::string& what) const { throw UsageError(where_ + ": " + what); }

  /// Values that differ, in the order of the file; a single one may stand without brackets.
  std::vector<double> reals(const char* key, const TomlValue& value, RealRange range) const {
    return list_of<double>(key, value, [&](const TomlValue& one) { return real_of(one, range); });
  }
  std::vector<int64_t> wholes(const char* key, const TomlValue& value, IntRange range) const {
    return list_of<int64_t>(key, value, [&](const TomlValue& one) { return whole_of(one, range); });
  }
  std::vector<std::string> words(const char* key, const TomlValue& value,
                                 const std::vector<std::string>& choices) const {
    return list_of<std::string>(key, value,
                                [&](const TomlValue& one) { return text_of(one, choices); });
  }

 private:
  template <typename T>
  std::vector<T> list_of(const char* key, const TomlValue& value, const auto& read) const {
    const std::string where = at_line(where_, value.line);
    const auto read_one = [&](const TomlValue& one) {
      auto result = read(one);
      if (!result) throw UsageError(fmt::format("{}: {} {}", where, key, result.error()));
      return *std::move(result);
    };
    const auto* list = value.get<TomlList>();
    if (list == nullptr) return {read_one(value)};
    if (list->empty()) fail(fmt::format("{} has no value", key));
    if (list->size() > kMaxValues) fail(fmt::format("{} has over {} values", key, kMaxValues));
    std::vector<T> values;
    for (const TomlValue& one : *list) {
      values.push_back(read_one(one));
      if (std::ranges::count(values, values.back()) > 1) {
        fail(fmt::format("{} has the value {} twice", key, one.shown()));
      }
    }
    return values;
  }

  std::string where_;
};

const TomlTable& table_of(const TomlValue& value, const std::string& where) {
  const auto* table = value.get<TomlTable>();
  if (table == nullptr) throw UsageError(where + " must be a table");
  return *table;
}

constexpr RealRange kRates{.min = 1e-12, .max = 1e3};
constexpr RealRange kTokens{.min = 1, .max = 1e15};

class Reader {
 public:
  Reader(const TomlTable& document, const std::string& where)
      : document_(document), where_(where) {}

  SweepSpec read() {
    const Section top(document_, where_, {"sweep", "settings", "sizes", "grid", "slurm"});
    read_sweep_section(top);
    if (const TomlValue* node = top.find("settings")) {
      spec_.settings = table_of(*node, where_ + ": settings");
    }
    if (const TomlValue* node = top.find("slurm")) {
      table_of(*node, where_ + ": slurm");
      spec_.slurm = {{"slurm", *node}};
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
    const TomlTable none;
    const TomlValue* node = top.find("sweep");
    const TomlTable& table = node == nullptr ? none : table_of(*node, where_ + ": sweep");
    for (const auto& [key, value] : table) given_.insert(key);
    const Section sweep(table, where_ + ": [sweep]",
                        {"tokens_per_param", "count", "extensions", "search", "halving_rate",
                         "halving_rungs", "seeds", "threads"});
    spec_.tokens_per_param = sweep.real("tokens_per_param", {.min = 1e-3, .max = 1e6}).value_or(20);
    spec_.papers_count = sweep.text("count", {"all", "papers"}) == "papers";
    spec_.extensions = sweep.whole("extensions", {.min = 0, .max = 100}).value_or(4);
    search_ = search_of(sweep.text("search", kSearches).value_or("grid"));
    spec_.halving_rate = sweep.whole("halving_rate", {.min = 2, .max = 100}).value_or(2);
    spec_.halving_rungs = sweep.whole("halving_rungs", {.min = 2, .max = 10}).value_or(3);
    if (const TomlValue* seeds = sweep.find("seeds"))
      seeds_ = sweep.wholes("seeds", *seeds, kSeeds);
    spec_.threads = sweep.whole("threads", {.min = 1, .max = 4096}).value_or(1);
  }

  void read_sizes(const Section& top) {
    const TomlValue* node = top.find("sizes");
    if (node == nullptr) {
      top.fail(
          "no [sizes.NAME]; each names the model settings of one size, as in hidden_size = 64");
    }
    for (const auto& [name, value] : table_of(*node, where_ + ": sizes")) {
      const std::string where = fmt::format("{}: [sizes.{}]", where_, name);
      require_name(name, where);
      table_of(value, where);
      spec_.sizes.push_back({name, {{"model", value}}});
    }
    if (spec_.sizes.empty()) top.fail("[sizes] is empty");
  }

  void read_grids(const Section& top) {
    const TomlList* grids = tables_of(top.find("grid"));
    if (grids == nullptr) {
      top.fail(
          "no [[grid]]; each names what is swept: sizes, replicas, lr, outer_lr, batch_tokens");
    }
    if (grids->size() > kMaxGrids) top.fail(fmt::format("over {} grids", kMaxGrids));
    for (const TomlValue& one : *grids) {
      read_grid(*one.get<TomlTable>(),
                fmt::format("{}: [[grid]] {}", where_, spec_.grids.size() + 1));
    }
  }

  void read_grid(const TomlTable& table, std::string where) {
    Grid grid;
    const auto name = table.find("name");
    if (name == table.end() || name->second.get<std::string>() == nullptr) {
      throw UsageError(where + ": it needs a name, as in name = \"lr\"");
    }
    grid.name = *name->second.get<std::string>();
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
    const TomlValue* sizes = section.find("sizes");
    grid.sizes = sizes == nullptr ? size_names : section.words("sizes", *sizes, size_names);
    const TomlValue* replicas = section.find("replicas");
    if (replicas == nullptr) section.fail("it needs replicas, as in replicas = [0, 1, 2]");
    grid.replicas = section.wholes("replicas", *replicas, {.min = 0, .max = 1024});
    read_methods(section, grid);
    const TomlValue* factors = section.find("tokens_factor");
    grid.tokens_factors = {1};
    if (factors != nullptr) {
      grid.tokens_factors = section.reals("tokens_factor", *factors, {.min = 1e-3, .max = 1e6});
    }
    read_axes(section, grid);
    grid.search = search_;
    if (const auto search = section.text("search", kSearches)) grid.search = search_of(*search);
    read_start(section, grid);
    grid.seeds = seeds_;
    if (const TomlValue* seeds = section.find("seeds")) {
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
    grid.starts_at_size_before = section.text("start", {"middle", "size_before"}) != "middle";
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
    if (const TomlValue* node = section.find("method")) {
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
    if (const TomlValue* node = section.find("sync_every")) {
      grid.sync_every = section.wholes("sync_every", *node, {.min = 1, .max = 1'000'000'000});
    }
  }

  void read_axes(const Section& section, Grid& grid) const {
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      const char* name = kAxisNames[axis];
      const TomlValue* node = section.find(name);
      if (node == nullptr) {
        if (axis == kOuterLr) continue;  // read_methods() has seen that no method uses it.
        section.fail(fmt::format("it needs {}: values, or \"best\" for an earlier grid's", name));
      }
      if (const auto* word = node->get<std::string>()) {
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

  const TomlTable& document_;
  const std::string& where_;
  SweepSpec spec_;
  Search search_ = Search::kGrid;
  std::vector<int64_t> seeds_ = {1};
  std::set<std::string> given_;  // Keys of [sweep].
};

}  // namespace

SweepSpec parse_sweep(std::string_view text, const std::string& where) {
  if (text.size() > kMaxSweepBytes) {
    throw UsageError(fmt::format("{}: larger than {} MiB", where, kMaxSweepBytes >> 20));
  }
  const TomlTable document = parse_toml(text, where);
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
