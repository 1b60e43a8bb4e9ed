#include "atoll/plan/plan_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <span>
#include <sstream>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"
#include "atoll/base/settings.h"
#include "atoll/swarm/rules.h"

namespace atl::plan {
namespace {

constexpr double kMost = 1e18;
constexpr int64_t kMostDevices = 1'000'000;
// Less is a slip of the pen.
constexpr double kLeastRate = 1e3;  // Bits per second.
constexpr double kLeastTime = 1e-3;

std::string shown(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return swarm::printable(out.str().substr(0, 60));
}

struct Mistakes {
  std::vector<std::string> lines;
  void add(std::string line) { lines.push_back(std::move(line)); }
};

/// One table of the file. What is wrong goes to the mistakes, and the value stays absent.
class Section {
 public:
  Section(const toml::table& table, std::string name, std::vector<std::string> keys,
          Mistakes& mistakes)
      : table_(table), name_(std::move(name)), mistakes_(mistakes) {
    for (const auto& [key, value] : table) {
      const std::string word(key.str());
      if (std::ranges::count(keys, word) > 0) continue;
      const std::string near = nearest(word, keys);
      mistakes_.add(fmt::format("{}: unknown key '{}'; {}", name_,
                                swarm::printable(word.substr(0, 60)),
                                near.empty() ? fmt::format("there are {}", fmt::join(keys, ", "))
                                             : fmt::format("did you mean '{}'?", near)));
    }
  }

  bool has(const char* key) const { return table_.contains(key); }
  void fail(const std::string& what) { mistakes_.add(fmt::format("{}: {}", name_, what)); }

  std::optional<std::string> text(const char* key) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    auto value = node->value_exact<std::string>();
    if (!value) fail(fmt::format("'{}' must be a text in quotes, not {}", key, shown(*node)));
    return value;
  }

  std::optional<double> number(const char* key, double min, double max) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (value && *value >= min && *value <= max) return value;
    fail(fmt::format("'{}' must be a number from {:g} to {:g}, not {}", key, min, max,
                     shown(*node)));
    return std::nullopt;
  }

  std::optional<int64_t> whole(const char* key, int64_t min, int64_t max) {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value_exact<int64_t>();
    if (value && *value >= min && *value <= max) return value;
    fail(fmt::format("'{}' must be a whole number from {} to {}, not {}", key, min, max,
                     shown(*node)));
    return std::nullopt;
  }

  /// A text with its unit, as in `example`; `least` is `min` for people.
  std::optional<double> quantity(const char* key, std::span<const Unit> units, const char* example,
                                 double max, double min = 0, const char* least = "") {
    const toml::node* node = table_.get(key);
    if (node == nullptr) return std::nullopt;
    if (const auto word = node->value_exact<std::string>()) {
      const auto value = parse_quantity(*word, units);
      if (value && *value >= min && *value <= max) return value;
    }
    std::vector<std::string_view> names;
    for (const Unit& unit : units) names.push_back(unit.name);
    fail(fmt::format("'{}' must be a number {} with its unit ({}), as in \"{}\", not {}", key,
                     min > 0 ? fmt::format("from {}", least) : "over 0", fmt::join(names, ", "),
                     example, shown(*node)));
    return std::nullopt;
  }

  std::optional<std::string> choice(const char* key, std::initializer_list<const char*> choices) {
    auto value = text(key);
    if (!value || std::ranges::find(choices, *value) != choices.end()) return value;
    fail(fmt::format("'{}' must be one of {}, not '{}'", key, fmt::join(choices, ", "),
                     swarm::printable(value->substr(0, 60))));
    return std::nullopt;
  }

  void require(const char* key, const char* why) {
    if (!has(key)) fail(fmt::format("'{}' is missing: {}", key, why));
  }

 private:
  const toml::table& table_;
  std::string name_;
  Mistakes& mistakes_;
};

void read_speed(Section& section, PlannedIsland& island) {
  const bool is_measured = section.has("tokens_per_s") || section.has("params");
  if (section.has("tflops") && is_measured) {
    section.fail("'tflops' and 'tokens_per_s' say the same; give one of them");
  }
  if (!section.has("tflops") && !is_measured) {
    section.fail(
        "its speed is missing: 'tflops' (of a device, as it trains), or 'tokens_per_s' with the "
        "'params' that they were measured with (`atoll plan --measure` measures them)");
  }
  if (is_measured) {
    section.require("tokens_per_s", "'params' says of which model");
    section.require("params", "'tokens_per_s' is of a model of so many parameters");
  }
  const auto tflops = section.number("tflops", 1e-9, 1e9);
  const auto tokens_per_s = section.number("tokens_per_s", 1e-9, kMost);
  const auto params = section.number("params", 1, kMost);
  if (tflops) island.flops_per_s = *tflops * 1e12;
  if (tokens_per_s && params) island.flops_per_s = 6 * *params * *tokens_per_s;
}

PlannedIsland read_island(const toml::table& table, size_t number, bool is_alone,
                          Mistakes& mistakes) {
  PlannedIsland island{.name = fmt::format("island-{}", number)};
  if (const auto name = table["name"].value_exact<std::string>()) island.name = *name;
  Section section(table, fmt::format("island '{}'", swarm::printable(island.name.substr(0, 60))),
                  {"name", "devices", "device", "tflops", "tokens_per_s", "params", "memory", "up",
                   "down", "latency"},
                  mistakes);
  if (section.text("name") && !swarm::is_valid_name(island.name)) {
    section.fail("'name' must be 1 to 64 of letters, digits, '-', '_' and '.'");
  }
  island.devices = section.whole("devices", 1, kMostDevices).value_or(1);
  island.is_cpu = section.choice("device", {"cuda", "cpu"}).value_or("cuda") == "cpu";
  read_speed(section, island);
  section.require("memory", "of one device, as in \"80GB\"");
  island.memory_bytes = section.quantity("memory", kByteUnits, "80GB", kMost).value_or(1);
  const char* const why = "several islands need links; `atoll plan --measure` measures one";
  if (!is_alone) {
    for (const char* key : {"up", "down", "latency"}) section.require(key, why);
  }
  const auto rate = [&](const char* key) {
    constexpr double kNoLink = std::numeric_limits<double>::infinity();
    return section.quantity(key, kRateUnits, "200mbit", kMost, kLeastRate, "1kbit")
        .value_or(kNoLink);
  };
  island.up_bits_per_s = rate("up");
  island.down_bits_per_s = rate("down");
  island.latency_s = section.quantity("latency", kTimeUnits, "50ms", 3600).value_or(0);
  return island;
}

PlanGoal read_goal(const toml::table& table, Mistakes& mistakes) {
  Section section(
      table, "[goal]",
      {"time", "tokens", "loss", "params", "tokens_per_param", "sequence_length", "vocab_size"},
      mistakes);
  PlanGoal goal;
  goal.time_s = section.quantity("time", kTimeUnits, "14d", 1e12, kLeastTime, "1ms");
  goal.tokens = section.number("tokens", 1, kMost);
  goal.loss = section.number("loss", 1e-6, 1e3);
  goal.params = section.number("params", 1, kMost);
  goal.tokens_per_param = section.number("tokens_per_param", 1e-3, 1e6);
  goal.sequence_length = section.whole("sequence_length", 2, 1 << 24).value_or(2048);
  goal.vocab_size = section.whole("vocab_size", 257, 1'000'000).value_or(32'000);
  if (!section.has("time") && !section.has("tokens") && !section.has("loss") &&
      !section.has("params")) {
    section.fail("there must be one of 'time', 'tokens', 'loss', 'params', or several");
  }
  if (goal.params && goal.tokens && goal.tokens_per_param) {
    section.fail(
        "'tokens' and 'params' say how many tokens there are for each parameter; leave "
        "'tokens_per_param' out, or one of them");
  }
  return goal;
}

PlanLaws read_laws(const toml::table& table, Mistakes& mistakes) {
  Section section(table, "[laws]", {"fit", "count", "batch_unit"}, mistakes);
  PlanLaws laws;
  laws.fit = section.text("fit").value_or("");
  if (section.has("fit") && laws.fit.empty()) section.fail("'fit' must name a file");
  const bool counts = section.choice("count", {"column", "papers"}).value_or("column") == "papers";
  laws.read.count = counts ? laws::Count::kPapers : laws::Count::kColumn;
  laws.read.batch_unit_tokens = section.number("batch_unit", 1, 1e9).value_or(1);
  for (const char* key : {"count", "batch_unit"}) {
    if (section.has(key) && !section.has("fit")) {
      section.fail(fmt::format("'{}' is about a 'fit', and there is none", key));
    }
  }
  return laws;
}

const toml::table& table_of(const toml::table& document, const char* name, Mistakes& mistakes) {
  static const toml::table kNone;
  const toml::node* node = document.get(name);
  if (node == nullptr) return kNone;
  if (const toml::table* table = node->as_table()) return *table;
  mistakes.add(fmt::format("'{}' must be a section, [{}]", name, name));
  return kNone;
}

std::vector<PlannedIsland> read_islands(const toml::table& document, Mistakes& mistakes) {
  const toml::node* node = document.get("island");
  const toml::array* array = node == nullptr ? nullptr : node->as_array();
  if (array == nullptr || array->empty() || !array->is_array_of_tables()) {
    mistakes.add("there must be an [[island]], with two brackets, for each island");
    return {};
  }
  if (array->size() > kMaxPlannedIslands) {
    mistakes.add(
        fmt::format("{} islands, and {} can be planned for", array->size(), kMaxPlannedIslands));
    return {};
  }
  std::vector<PlannedIsland> islands;
  for (const toml::node& entry : *array) {
    islands.push_back(read_island(*entry.as_table(), islands.size(), array->size() == 1, mistakes));
    const auto twins = std::ranges::count(islands, islands.back().name, &PlannedIsland::name);
    if (twins > 1) {
      mistakes.add(fmt::format("two islands are called '{}'",
                               swarm::printable(islands.back().name.substr(0, 60))));
    }
  }
  return islands;
}

}  // namespace

std::string quoted_names(const PlanRequest& request, const std::vector<size_t>& places) {
  std::vector<std::string> names;
  for (const size_t i : places) names.push_back("'" + request.islands[i].name + "'");
  return fmt::format("{}", fmt::join(names, ", "));
}

PlanRequest parse_plan(std::string_view text, const std::string& where) {
  if (text.size() > kMaxPlanBytes) {
    throw UsageError(fmt::format("{}: larger than {} MiB; a plan has a few lines for each island",
                                 where, kMaxPlanBytes >> 20));
  }
  toml::table document;
  try {
    document = toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw UsageError(
        fmt::format("{}: line {}: {}", where, error.source().begin.line, error.description()));
  }
  Mistakes mistakes;
  Section(document, "the file", {"island", "goal", "laws"}, mistakes);
  PlanRequest request;
  request.islands = read_islands(document, mistakes);
  request.goal = read_goal(table_of(document, "goal", mistakes), mistakes);
  request.laws = read_laws(table_of(document, "laws", mistakes), mistakes);
  if (mistakes.lines.empty()) return request;
  throw UsageError(mistakes.lines.size() == 1
                       ? fmt::format("{}: {}", where, mistakes.lines[0])
                       : fmt::format("{}: {} mistakes\n  {}", where, mistakes.lines.size(),
                                     fmt::join(mistakes.lines, "\n  ")));
}

}  // namespace atl::plan
