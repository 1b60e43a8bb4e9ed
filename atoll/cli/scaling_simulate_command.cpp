#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/real_number.h"
#include "atoll/cli/scaling_command.h"
#include "atoll/cli/scaling_from_run.h"
#include "atoll/cli/scaling_utilisation_table.h"
#include "atoll/cli/scaling_wall_clock.h"
#include "atoll/cli/whole_number.h"
#include "atoll/laws/chart.h"
#include "atoll/laws/utilisation.h"
#include "atoll/laws/wall_clock.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;
using laws::SimulatedMethod;
using laws::Workload;

constexpr const char* kFooter = R"(
Computes which share of all islands' capacity computes, on the papers' grid of 50 bandwidths from
0.1 to 1000 Gbit/s, and the first of them that reaches each target; <=0.1 where less may be enough.
An island counts by its speed: of speeds 1 and 0.5, which wait for each other, 66.7 % compute at
most. Without --method: the five rows of Streaming DiLoCo's Table 4. The papers' tables come out
with 13.35 bits where they say 16; --calibration paper scales all bits so, none takes them as they
are.

An island is speed=S,up=U,down=D,latency=SECONDS, each left out where it is 1 (0 for latency); up
and down are multiples of the bandwidth. Islands wait for each other.

With --failure-hours so long a time is simulated that 1000 failures are expected, of all islands
together (fewer where these are too much work): another --seed changes what they cost by about 3 %
of it, 1 / sqrt(1000), a standard deviation. --steps may simulate fewer or more.

With --tokens, --batch-tokens and --chips also the idealised wall-clock of Scaling Laws for DiLoCo,
appendix A, with networks of 400, 100 and 10 Gbit/s; --step-time may then be left out. There
--bits is of outer gradients; those of each step have 16.

--from RUN takes the steps, rounds and bytes of a run (its folder, or one island's) and compares
what it measured with what follows from its lines: --gbps, with --island once for each island; or
--link-rate as `atoll train` had it; or what its quickest rounds show. The latency of an island is
then that of its own line, one way. Its report has the share of its own time that each island
computed, and of the time of all together, whatever their speeds.

Examples:
  atoll scaling simulate --params 1e9 --layers 24 --step-time 0.1
  atoll scaling simulate --params 1e9 --layers 24 --step-time 0.1 --plot links.svg
  atoll scaling simulate --params 1e9 --layers 24 --step-time 0.1 --method diloco \
    --sync-every 100 --targets 0.5,0.8
  atoll scaling simulate --params 1e8 --layers 12 --step-time 2 --gbps 0.1 --calibration none \
    --island up=0.2,latency=0.05 --island speed=0.5
  atoll scaling simulate --params 2.4e9 --layers 30 --tokens 48e9 --batch-tokens 262144 \
    --chips 256
  atoll scaling simulate --from runs/mine --link-rate 20mbit
  atoll scaling simulate --from runs/mine --gbps 0.1 --island latency=0.01 --island up=0.2)";

struct SimulateArguments {
  Workload work;
  std::string method;
  std::string calibration = "paper";
  std::vector<std::string> islands;
  std::vector<double> targets = {0.5, 0.8, 0.9, 0.95, 0.99};
  double gbps = 0;
  laws::TrainingPlan plan;
  double chip_tflops = 300;
  std::string plot;
  bool json = false;
  std::string from;
  std::string link_rate;
  bool has_calibration = false;
  // What was given; the rest follows from the method.
  bool has_sync_every = false;
  bool has_fragments = false;
  bool has_delay = false;
  bool has_plot = false;
};

/// "speed=0.5,up=0.1": what is not named keeps its default.
laws::SimulatedIsland parse_island(const std::string& text) {
  laws::SimulatedIsland island;
  std::set<std::string> seen;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    std::string number = equals == std::string::npos ? "" : part.substr(equals + 1);
    double* const value = name == "speed"     ? &island.speed
                          : name == "up"      ? &island.up
                          : name == "down"    ? &island.down
                          : name == "latency" ? &island.latency_s
                                              : nullptr;
    const double min = name == "latency" ? 0 : 1e-6;
    if (value == nullptr) {
      throw UsageError(fmt::format(
          "--island {}: '{}' is none of speed, up, down, latency; as in speed=0.5,latency=0.05",
          text, name));
    }
    if (!seen.insert(name).second) {
      throw UsageError(fmt::format("--island {}: {} is given twice", text, name));
    }
    const std::string refusal = real_number(min, 1e6)(number);
    if (!refusal.empty()) throw UsageError(fmt::format("--island {}: {} {}", text, name, refusal));
    *value = std::stod(number);
  }
  return island;
}

/// The layers' third is the papers' choice: three layers a fragment.
int default_fragments(int layers) { return std::max(1, layers / 3); }

Workload workload_of(const SimulateArguments& arguments, SimulatedMethod method) {
  Workload work = arguments.work;
  work.method = method;
  if (!arguments.has_sync_every && method == SimulatedMethod::kDataParallel) work.sync_every = 1;
  if (method == SimulatedMethod::kStreamingDiloco) {
    if (!arguments.has_fragments) {
      work.fragments = std::min(default_fragments(work.layers), work.sync_every - 1);
    }
    if (!arguments.has_delay) work.delay = 1;
  }
  if (arguments.calibration == "paper") work.bits *= laws::kPaperCalibration;
  return work;
}

/// The rows of the paper's table, with this workload's settings.
std::vector<UtilisationRow> all_rows(const SimulateArguments& arguments) {
  SimulateArguments plain = arguments;
  plain.work.fragments = 1;
  plain.work.delay = 0;
  SimulateArguments every_step = plain;
  every_step.has_sync_every = false;
  SimulateArguments waiting = arguments;
  waiting.has_delay = true;
  waiting.work.delay = 0;
  SimulateArguments four_bits = arguments;
  four_bits.work.bits = 4;
  const auto bits = [](const SimulateArguments& a) {
    return fmt::format("{:g} bits", a.work.bits);
  };
  std::vector<UtilisationRow> rows = {
      {"data_parallel", workload_of(every_step, SimulatedMethod::kDataParallel)},
      {"diloco", workload_of(plain, SimulatedMethod::kDiloco)}};
  if (arguments.has_sync_every && arguments.work.sync_every < 2) return rows;  // No fragments.
  rows.push_back(
      {"streaming_diloco, no delay", workload_of(waiting, SimulatedMethod::kStreamingDiloco)});
  Workload overlapped = workload_of(arguments, SimulatedMethod::kStreamingDiloco);
  if (overlapped.delay == 0) return rows;  // --delay 0: that row stands already.
  const std::string name = fmt::format("streaming_diloco, delay {}", overlapped.delay);
  rows.push_back({name + ", " + bits(arguments), overlapped});
  if (arguments.work.bits > 4) {
    rows.push_back(
        {name + ", " + bits(four_bits), workload_of(four_bits, SimulatedMethod::kStreamingDiloco)});
  }
  return rows;
}

/// What was asked for: one method, or all.
std::vector<UtilisationRow> rows_of(const SimulateArguments& arguments) {
  if (arguments.method.empty()) return all_rows(arguments);
  return {{arguments.method, workload_of(arguments, *laws::simulated_method(arguments.method))}};
}

void draw(const SimulateArguments& arguments, const std::vector<UtilisationRow>& rows) {
  laws::Chart chart{
      .title = fmt::format("Compute utilisation: {} parameters, {} layers, {:g} s a step",
                           format_count(arguments.work.params), arguments.work.layers,
                           arguments.work.step_s),
      .x_label = "bandwidth between islands (Gbit/s)",
      .y_label = "share of the islands' capacity that computes",
      .series = {}};
  for (const UtilisationRow& row : rows) {
    laws::ChartSeries series{.name = row.name, .line = {}, .points = {}, .band = {}};
    for (int k = 0; k < laws::kGridSize; ++k) {
      series.line.push_back({laws::grid_gbps(k), row.grid[static_cast<size_t>(k)]});
    }
    chart.series.push_back(std::move(series));
  }
  write_file_atomically(arguments.plot, laws::chart_file(chart, arguments.plot));
}

void complete(SimulateArguments& arguments) {
  for (const std::string& island : arguments.islands) {
    if (&island == arguments.islands.data()) arguments.work.islands.clear();
    arguments.work.islands.push_back(parse_island(island));
  }
  const size_t num_islands = arguments.islands.size();
  double& replicas = arguments.plan.replicas;
  if (replicas > 0 && num_islands > 0 && replicas != static_cast<double>(num_islands)) {
    throw UsageError(fmt::format(
        "--replicas {} contradicts {} --island: leave --replicas out, or give as many --island",
        replicas, num_islands));
  }
  if (replicas == 0) replicas = num_islands > 0 ? static_cast<double>(num_islands) : 2;
  arguments.plan.params = arguments.work.params;
  arguments.plan.flops_per_second = arguments.chip_tflops * 1e12;
  arguments.plan.sync_every = arguments.work.sync_every;
  arguments.plan.outer_bits = arguments.work.bits;
  if (arguments.work.step_s > 0) return;
  if (arguments.plan.tokens == 0) {
    throw UsageError("--step-time is needed, or --tokens, --batch-tokens and --chips");
  }
  laws::check(arguments.plan);
  arguments.work.step_s = arguments.plan.step_s();
}

/// Refuses what has no sense beside a run's own numbers and CLI11 does not know of.
FromRun from_run(const SimulateArguments& arguments) {
  if (arguments.has_calibration && arguments.calibration != "none") {
    throw UsageError(
        "--calibration paper is for the papers' tables: --from counts the bits that were sent");
  }
  FromRun from{.run = arguments.from,
               .link_rate = arguments.link_rate,
               .gbps = arguments.gbps,
               .targets = arguments.targets,
               .plot = arguments.plot,
               .json = arguments.json};
  for (const std::string& island : arguments.islands) from.islands.push_back(parse_island(island));
  return from;
}

void simulate(SimulateArguments& arguments) {
  if (arguments.has_plot) {
    // Refuses the name before the work.
    if (!arguments.plot.empty()) laws::chart_file({}, arguments.plot);
    require_output_file(arguments.plot, "--plot");
  }
  if (!arguments.from.empty()) return simulate_from(from_run(arguments));
  if (arguments.work.params == 0 || arguments.work.layers == 0) {
    throw UsageError("--params and --layers are needed, or --from RUN");
  }
  complete(arguments);
  std::vector<UtilisationRow> rows = rows_of(arguments);
  for (const UtilisationRow& row : rows) laws::check(row.work);
  std::vector<laws::TrainingPlan> plans;
  if (arguments.plan.tokens > 0) plans = laws::plans_of(arguments.plan, arguments.method);
  simulate_rows(rows, arguments.gbps, !arguments.json);
  if (!arguments.plot.empty()) draw(arguments, rows);
  note_few_failures(rows);
  if (!arguments.json) {
    print_utilisation(rows, arguments.targets, arguments.gbps);
    if (arguments.calibration == "paper") {
      fmt::print(
          "{:g} bits are counted as {:.4g}, as the papers' tables need; --calibration none for "
          "your own links\n",
          arguments.work.bits, arguments.work.bits * laws::kPaperCalibration);
    }
    print_failures(rows);
    print_wall_clock(plans);
    return;
  }
  Json methods = Json::array();
  for (const UtilisationRow& row : rows) {
    methods.push_back(utilisation_json(row, arguments.targets, arguments.gbps));
  }
  Json json = arguments.method.empty() ? Json{{"methods", methods}} : methods[0];
  json["calibration"] = arguments.calibration;
  json["step_s"] = arguments.work.step_s;
  if (!plans.empty()) json["wall_clock"] = wall_clock_json(plans);
  fmt::print("{}\n", json.dump());
}

void add_work_options(CLI::App& command, SimulateArguments& arguments) {
  Workload& work = arguments.work;
  command.add_option("--params", work.params, "Parameters of the model")
      ->check(real_number(1, 1e18));
  command.add_option("--layers", work.layers, "Layers of the model")
      ->check(whole_number<int>(1, 10'000));
  command.add_option("--step-time", work.step_s, "Seconds that one inner step computes for")
      ->check(real_number(1e-9, 1e9));
  command.add_option("--method", arguments.method, "One method; without it all are compared")
      ->check(CLI::IsMember({"data_parallel", "diloco", "streaming_diloco"}));
  command.add_option("--sync-every", work.sync_every, "Inner steps between two syncs")
      ->capture_default_str()
      ->check(whole_number<int>(1, 1'000'000));
  command
      .add_option("--fragments", work.fragments,
                  "Streaming: parts of the layers, strided (default: three layers each)")
      ->check(whole_number<int>(0, 10'000));
  command
      .add_option("--delay", work.delay,
                  "Streaming: steps that an exchange may take beside computing (default: 1)")
      ->check(whole_number<int>(0, 1'000'000));
  command.add_option("--bits", work.bits, "Bits per parameter")
      ->capture_default_str()
      ->check(real_number(1e-3, 1024));
  command
      .add_option("--calibration", arguments.calibration,
                  "paper: 13.35 bits for each 16, as the papers' tables need; none: true bits")
      ->capture_default_str()
      ->check(CLI::IsMember({"paper", "none"}));
  command
      .add_option(
          "--steps", work.steps,
          "Steps simulated (default: ten periods and one, 40 of data_parallel; with failures "
          "until 1000 of them are expected)")
      ->check(whole_number<int64_t>(1, 1'000'000'000'000'000));
}

void add_link_options(CLI::App& command, SimulateArguments& arguments) {
  const std::string group = "Islands and failures";
  command
      .add_option("--island", arguments.islands,
                  "speed=S,up=U,down=D,latency=SECONDS; once for each island")
      ->allow_extra_args(false)
      ->group(group);
  laws::Failures& failures = arguments.work.failures;
  CLI::Option* hours = command
                           .add_option("--failure-hours", failures.mean_hours,
                                       "Mean time between two failures of an island; 0: none")
                           ->check(real_number(0, 1e9))
                           ->group(group);
  command.add_option("--recovery-time", failures.recovery_s, "Seconds until it is back")
      ->capture_default_str()
      ->check(real_number(1e-3, 1e9))
      ->needs(hours)
      ->group(group);
  command
      .add_option("--detection-time", failures.detection_s,
                  "Seconds that the others wait for one that is gone")
      ->capture_default_str()
      ->check(real_number(0, 1e9))
      ->needs(hours)
      ->group(group);
  command.add_option("--seed", failures.seed, "Of the failures")
      ->capture_default_str()
      ->check(whole_number<uint64_t>(0))
      ->needs(hours)
      ->group(group);
}

void add_wall_clock_options(CLI::App& command, SimulateArguments& arguments) {
  const std::string group = "Idealised wall-clock";
  laws::TrainingPlan& plan = arguments.plan;
  CLI::Option* tokens = command.add_option("--tokens", plan.tokens, "Tokens of the whole training")
                            ->check(real_number(1, 1e18))
                            ->group(group);
  CLI::Option* batch =
      command.add_option("--batch-tokens", plan.batch_tokens, "Tokens of a step, of all replicas")
          ->check(real_number(1, 1e15))
          ->group(group);
  CLI::Option* chips = command.add_option("--chips", plan.chips, "Chips of all replicas")
                           ->check(real_number(1, 1e9))
                           ->group(group);
  tokens->needs(batch)->needs(chips);
  batch->needs(tokens);
  chips->needs(tokens);
  command.add_option("--chip-tflops", arguments.chip_tflops, "Teraflop/s of a chip, as it trains")
      ->capture_default_str()
      ->check(real_number(1e-6, 1e9))
      ->needs(tokens)
      ->group(group);
  command
      .add_option("--replicas", plan.replicas,
                  "Islands that train, as many as --island (default, or 2 without)")
      ->check(whole_number<int>(1, 1'000'000))
      ->needs(tokens)
      ->group(group);
}

/// What a run says itself, it is not told.
void add_run_options(CLI::App& command, SimulateArguments& arguments) {
  const std::string group = "From a run";
  CLI::Option* from = command.add_option("--from", arguments.from, "Its folder, or one island's")
                          ->type_name("RUN")
                          ->group(group);
  CLI::Option* rate =
      command
          .add_option("--link-rate", arguments.link_rate,
                      "What each of its islands sends at, as `atoll train --link-rate` had it")
          ->needs(from)
          ->group(group);
  rate->excludes(command.get_option("--gbps"));
  for (const char* name :
       {"--params", "--layers", "--step-time", "--method", "--sync-every", "--fragments", "--delay",
        "--bits", "--steps", "--failure-hours", "--tokens", "--batch-tokens", "--chips"}) {
    from->excludes(command.get_option(name));
  }
}

}  // namespace

void add_scaling_simulate(CLI::App& scaling) {
  CLI::App* command = scaling.add_subcommand(
      "simulate", "How much bandwidth keeps islands computing; how long a training takes");
  const auto arguments = std::make_shared<SimulateArguments>();
  add_work_options(*command, *arguments);
  command->add_option("--targets", arguments->targets, "Shares of the capacity that compute")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(real_number(1e-6, 1));
  command->add_option("--gbps", arguments->gbps, "Also show the utilisation at this bandwidth")
      ->check(real_number(1e-9, 1e9));
  add_link_options(*command, *arguments);
  add_wall_clock_options(*command, *arguments);
  add_run_options(*command, *arguments);
  command->add_option("--plot", arguments->plot,
                      "Write a picture: utilisation over bandwidth (.svg or .html)");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->footer(kFooter);
  command->callback([arguments, command] {
    arguments->has_sync_every = command->count("--sync-every") > 0;
    arguments->has_fragments = command->count("--fragments") > 0;
    arguments->has_delay = command->count("--delay") > 0;
    arguments->has_plot = command->count("--plot") > 0;
    arguments->has_calibration = command->count("--calibration") > 0;
    simulate(*arguments);
  });
}

}  // namespace atl::cli
