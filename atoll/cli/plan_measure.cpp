#include "atoll/cli/plan_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/base/progress.h"
#include "atoll/cli/bench_settings.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/torch_answer.h"
#include "atoll/laws/recorded_run.h"
#include "atoll/plan/plan_request.h"
#include "atoll/run/config.h"
#include "atoll/run/own_share.h"
#include "atoll/swarm/link_measurement.h"
#include "atoll/swarm/rules.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// What `atoll bench train-step` says: of each of the processes the least.
struct Machine {
  int64_t processes = 1;
  double tokens_per_s = 0;
  int64_t params = 0;
  double memory_bytes = 0;
  std::string device;
  std::string precision;
  int64_t threads = 0;
};

/// The model and a process's rows of a configuration.
run::RunConfig measured_config(const MeasureOptions& options) {
  for (const std::string& word : options.overrides) {
    if (!word.starts_with("model.") && !word.starts_with("train.")) {
      throw UsageError(
          fmt::format("--{}: only --model and --train settings can be measured", word));
    }
  }
  // Small enough for any machine, and not so small that what surrounds it would count.
  run::RunConfig usual;
  usual.model.vocab_size = 8192;
  usual.train.batch_rows = 8 * options.processes;
  run::RunConfig config = options.config.empty() ? usual : run::RunConfig();
  run::apply(config, options.config, options.overrides);
  if (config.model.vocab_size == 0) config.model.vocab_size = config.data.vocab_size;
  const int64_t sharing = config.swarm.num_replicas() * options.processes;
  config.train.batch_rows = config.train.micro_batch_rows > 0
                                ? config.train.micro_batch_rows
                                : std::max<int64_t>(1, config.train.batch_rows / sharing);
  config.train.micro_batch_rows = 0;
  return config;
}

/// As `atoll bench train-step` takes it.
std::vector<std::string> command_of(run::RunConfig& config) {
  std::vector<std::string> words = {"bench", "train-step", "--json"};
  const SettingList list = config.settings();
  const std::vector<Setting> changed = run::changed_settings(config);
  for (const Setting& setting : list.settings()) {
    const bool is_asked = std::ranges::count(changed, setting.name(), &Setting::name) > 0 ||
                          setting.name() == "train.batch_rows" || setting.name() == "train.z_loss";
    if (is_asked && is_measured(setting.name())) words.push_back("--" + setting.assignment());
  }
  return words;
}

/// In programs of their own, as they need LibTorch: one for each process, all at once.
Machine measure_machine(const MeasureOptions& options, const Clock& clock) {
  std::vector<std::vector<std::string>> commands;
  for (int64_t rank = 0; rank < options.processes; ++rank) {
    run::RunConfig config = measured_config(options);
    if (options.processes > 1) {
      run::take_own_share(config.train, {.local_rank = rank, .local_size = options.processes});
    }
    commands.push_back(command_of(config));
  }
  ProgressBar bar("measuring a training step", 0, clock);
  const std::vector<nlohmann::json> answers = torch_answers(commands, [] {});
  const nlohmann::json& first = answers.front();
  Machine machine{.processes = options.processes,
                  .tokens_per_s = first.at("tokens_per_s"),
                  .params = first.at("parameters"),
                  .memory_bytes = first.at("memory_bytes"),
                  .device = first.at("device"),
                  .precision = first.at("precision"),
                  .threads = first.at("threads")};
  for (const nlohmann::json& answer : answers) {
    machine.tokens_per_s = std::min(machine.tokens_per_s, answer.at("tokens_per_s").get<double>());
    machine.memory_bytes = std::min(machine.memory_bytes, answer.at("memory_bytes").get<double>());
  }
  if (machine.device == "cpu") machine.memory_bytes /= static_cast<double>(options.processes);
  return machine;
}

std::string island_text(const std::string& name, const Machine& machine,
                        const std::optional<swarm::MeasuredLink>& link) {
  std::string text = fmt::format(
      "# Measured by `atoll plan --measure` with {} parameters on {}{}{}.\n"
      "[[island]]\nname = \"{}\"\ndevices = {}\ndevice = \"{}\"\ntokens_per_s = {:.4g}\nparams = "
      "{}\n"
      "precision = \"{}\"\nmemory = \"{:.2f}GB\"\n",
      format_count(static_cast<double>(machine.params)), machine.device,
      machine.device == "cpu" ? fmt::format(", {} threads", machine.threads) : "",
      machine.processes > 1 ? fmt::format(", by each of {} processes", machine.processes) : "",
      name, machine.processes, machine.device == "cpu" ? "cpu" : "cuda", machine.tokens_per_s,
      machine.params, machine.precision, machine.memory_bytes / 1e9);
  if (!link) {
    return text + "# up, down, latency: not measured; --coordinator measures them\n";
  }
  // What came through had headers beside it.
  const auto kbit = [](double bits_per_s) {
    return std::max(1.0, std::round(bits_per_s / laws::kPayloadShare / 1e3));
  };
  return text + fmt::format("up = \"{:.0f}kbit\"\ndown = \"{:.0f}kbit\"\nlatency = \"{:.3f}ms\"\n",
                            kbit(link->up_bits_per_s), kbit(link->down_bits_per_s),
                            std::max(1e-3, 1e3 * link->round_trip_s));
}

Json island_json(const std::string& name, const Machine& machine,
                 const std::optional<swarm::MeasuredLink>& link, const std::string& text) {
  Json json = {{"name", name},
               {"device", machine.device},
               {"threads", machine.threads},
               {"processes", machine.processes},
               {"precision", machine.precision},
               {"tokens_per_s", machine.tokens_per_s},
               {"params", machine.params},
               {"memory_bytes", machine.memory_bytes},
               {"link", Json()},
               {"island", text}};
  if (link) {
    json["link"] = {{"up_bits_per_s", link->up_bits_per_s},
                    {"down_bits_per_s", link->down_bits_per_s},
                    {"round_trip_s", link->round_trip_s},
                    {"is_lower_bound", link->is_window_full}};
  }
  return json;
}

/// It might be a plan that somebody wrote.
void require_new_file(const std::string& file) {
  require_output_file(file, "--out");
  if (!fs::exists(file)) return;
  throw UsageError(fmt::format(
      "--out: '{}' is there already; give a new file, whose [[island]] goes into the plan", file));
}

}  // namespace

void measure_island(const MeasureOptions& options) {
  if (!options.out.empty()) require_new_file(options.out);
  const std::string here = swarm::is_valid_name(machine_name()) ? machine_name() : "here";
  const std::string name = options.name.empty() ? here : options.name;
  if (!swarm::is_valid_name(name)) {
    throw UsageError("--name must be 1 to 64 letters, digits, '-', '_' or '.'");
  }
  const SystemClock clock;
  watch_interrupts();
  // The line first: it fails sooner.
  const std::optional<swarm::MeasuredLink> link = measure_line(options.line, name, clock);
  const Machine machine = measure_machine(options, clock);
  const std::string text = island_text(name, machine, link);
  if (!link) {
    fmt::print(stderr,
               "atoll: the line is not measured: name a coordinator with --coordinator, or write "
               "up, down and latency yourself\n");
  } else if (link->is_window_full) {
    fmt::print(stderr,
               "atoll: the line carries more than one connection shows: its rates are at least "
               "these\n");
  }
  if (!options.out.empty()) write_file_atomically(options.out, text);
  if (options.json) {
    fmt::print("{}\n", island_json(name, machine, link, text).dump());
  } else {
    fmt::print("{}", text);
  }
}

}  // namespace atl::cli
