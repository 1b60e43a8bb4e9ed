#include "atoll/plan/plan_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/base/toml.h"
#include "atoll/swarm/rules.h"

namespace atl::plan {
namespace {

constexpr double kMost = 1e18;
constexpr int64_t kMostDevices = 1'000'000;
// Less is a slip of the pen.
constexpr double kLeastRate = 1e3;  // Bits per second.
constexpr double kLeastTime = 1e-3;

const std::vector<std::string> kPrecisions = {"fp32", "bf16"};

struct Mistakes {
  std::vector<std::string> lines;
  void add(std::string line) { lines.push_back(std::move(line)); }
};

/// One table of the file. What is wrong goes to the mistakes, and the value stays absent.
class Section : public TomlSection {
 public:
  Section(const TomlTable& table, const std::string& name, const std::vector<std::string>& keys,
          Mistakes& mistakes)
      : TomlSection(table, keys,
                    [name, &mistakes](int64_t line, const auto& key, const auto& what) {
                      const std::string about = key.empty() ? "" : fmt::format("'{}' ", key);
                      mistakes.add(swarm::printable(
                          fmt::format("line {}: {}: {}{}", line, name, about, what)));
                    }),
        name_(name),
        mistakes_(mistakes) {}

  /// False where there is none.
  bool is_true(const char* key) const {
    const TomlValue* const value = find(key);
    if (value == nullptr) return false;
    const TomlResult<bool> truth = truth_of(*value);
    if (!truth) fail(fmt::format("'{}' {}", key, truth.error()));
    return truth.value_or(false);
  }
  void fail(const std::string& what) const { mistakes_.add(fmt::format("{}: {}", name_, what)); }
  void require(const char* key, const char* why) const {
    if (!has(key)) fail(fmt::format("'{}' is missing: {}", key, why));
  }

 private:
  std::string name_;
  Mistakes& mistakes_;
};

void read_speed(const Section& section, PlannedIsland& island) {
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
  const auto tflops = section.real("tflops", {.min = 1e-9, .max = 1e9});
  const auto tokens_per_s = section.real("tokens_per_s", {.min = 1e-9, .max = kMost});
  const auto params = section.real("params", {.min = 1, .max = kMost});
  island.precision = section.text("precision", kPrecisions).value_or(island.precision);
  if (tflops) island.flops_per_s = *tflops * 1e12;
  if (tokens_per_s && params) island.flops_per_s = 6 * *params * *tokens_per_s;
}

PlannedIsland read_island(const TomlTable& table, size_t number, bool is_alone,
                          Mistakes& mistakes) {
  PlannedIsland island{.name = fmt::format("island-{}", number)};
  if (const auto name = table.find("name"); name != table.end()) {
    island.name = text_of(name->second, {}).value_or(island.name);
  }
  Section section(table, fmt::format("island '{}'", swarm::printable(island.name.substr(0, 60))),
                  {"name", "devices", "device", "tflops", "tokens_per_s", "params", "precision",
                   "memory", "up", "down", "latency"},
                  mistakes);
  if (section.text("name") && !swarm::is_valid_name(island.name)) {
    section.fail("'name' must be 1 to 64 of letters, digits, '-', '_' and '.'");
  }
  island.devices = section.whole("devices", {.min = 1, .max = kMostDevices}).value_or(1);
  island.is_cpu = section.text("device", {"cuda", "cpu"}).value_or("cuda") == "cpu";
  read_speed(section, island);
  section.require("memory", "of one device, as in \"80GB\"");
  island.memory_bytes = section.quantity("memory", {kByteUnits, "80GB", kMost}).value_or(1);
  const char* const why = "several islands need links; `atoll plan --measure` measures one";
  if (!is_alone) {
    for (const char* key : {"up", "down", "latency"}) section.require(key, why);
  }
  const auto rate = [&](const char* key) {
    constexpr double kNoLink = std::numeric_limits<double>::infinity();
    return section.quantity(key, {kRateUnits, "200mbit", kMost, kLeastRate, "1kbit"})
        .value_or(kNoLink);
  };
  island.up_bits_per_s = rate("up");
  island.down_bits_per_s = rate("down");
  island.latency_s = section.quantity("latency", {kTimeUnits, "50ms", 3600}).value_or(0);
  return island;
}

PlanGoal read_goal(const TomlTable& table, Mistakes& mistakes) {
  Section section(
      table, "[goal]",
      {"time", "tokens", "loss", "params", "tokens_per_param", "sequence_length", "vocab_size"},
      mistakes);
  PlanGoal goal;
  goal.time_s = section.quantity("time", {kTimeUnits, "14d", 1e12, kLeastTime, "1ms"});
  goal.tokens = section.real("tokens", {.min = 1, .max = kMost});
  goal.loss = section.real("loss", {.min = 1e-6, .max = 1e3});
  goal.params = section.real("params", {.min = 1, .max = kMost});
  goal.tokens_per_param = section.real("tokens_per_param", {.min = 1e-3, .max = 1e6});
  goal.sequence_length =
      section.whole("sequence_length", {.min = 2, .max = 1 << 24}).value_or(2048);
  goal.vocab_size = section.whole("vocab_size", {.min = 257, .max = 1'000'000}).value_or(32'000);
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

PlanTraining read_training(const TomlTable& table, const std::vector<PlannedIsland>& islands,
                           Mistakes& mistakes) {
  Section section(table, "[train]", {"precision", "shard", "activation_checkpointing"}, mistakes);
  PlanTraining train;
  train.precision = section.text("precision", kPrecisions);
  train.shard = section.text("shard", {"none", "zero1", "zero3"});
  train.activation_checkpointing = section.is_true("activation_checkpointing");
  const auto refuses = [&](const PlannedIsland& island) {
    return island.devices > 1 && !island.is_cpu && train.shard == "zero3";
  };
  if (const auto gpus = std::ranges::find_if(islands, refuses); gpus != islands.end()) {
    section.fail(fmt::format("'shard' = \"zero3\" is for CPUs, and '{}' has GPUs; give \"zero1\"",
                             swarm::printable(gpus->name.substr(0, 60))));
  }
  return train;
}

PlanLaws read_laws(const TomlTable& table, Mistakes& mistakes) {
  Section section(table, "[laws]", {"fit", "count", "batch_unit"}, mistakes);
  PlanLaws laws;
  laws.fit = section.text("fit").value_or("");
  if (section.has("fit") && laws.fit.empty()) section.fail("'fit' must name a file");
  const bool counts = section.text("count", {"column", "papers"}).value_or("column") == "papers";
  laws.read.count = counts ? laws::Count::kPapers : laws::Count::kColumn;
  laws.read.batch_unit_tokens = section.real("batch_unit", {.min = 1, .max = 1e9}).value_or(1);
  for (const char* key : {"count", "batch_unit"}) {
    if (section.has(key) && !section.has("fit")) {
      section.fail(fmt::format("'{}' is about a 'fit', and there is none", key));
    }
  }
  return laws;
}

const TomlTable& table_of(const Section& document, const char* name, Mistakes& mistakes) {
  static const TomlTable kNone;
  const TomlValue* value = document.find(name);
  if (value == nullptr) return kNone;
  if (const auto* table = value->get<TomlTable>()) return *table;
  mistakes.add(fmt::format("line {}: '{}' must be a section, [{}]", value->line, name, name));
  return kNone;
}

std::vector<PlannedIsland> read_islands(const Section& document, Mistakes& mistakes) {
  const TomlList* array = tables_of(document.find("island"));
  if (array == nullptr) {
    mistakes.add("there must be an [[island]], with two brackets, for each island");
    return {};
  }
  if (array->size() > kMaxPlannedIslands) {
    mistakes.add(
        fmt::format("{} islands, and {} can be planned for", array->size(), kMaxPlannedIslands));
    return {};
  }
  std::vector<PlannedIsland> islands;
  for (const TomlValue& entry : *array) {
    islands.push_back(
        read_island(*entry.get<TomlTable>(), islands.size(), array->size() == 1, mistakes));
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
  const TomlTable tables = parse_toml(text, where);
  Mistakes mistakes;
  const Section document(tables, "the file", {"island", "goal", "train", "laws"}, mistakes);
  PlanRequest request;
  request.islands = read_islands(document, mistakes);
  request.goal = read_goal(table_of(document, "goal", mistakes), mistakes);
  request.train = read_training(table_of(document, "train", mistakes), request.islands, mistakes);
  request.laws = read_laws(table_of(document, "laws", mistakes), mistakes);
  if (mistakes.lines.empty()) return request;
  throw UsageError(mistakes.lines.size() == 1
                       ? fmt::format("{}: {}", where, mistakes.lines[0])
                       : fmt::format("{}: {} mistakes\n  {}", where, mistakes.lines.size(),
                                     fmt::join(mistakes.lines, "\n  ")));
}

}  // namespace atl::plan
