#include "atoll/cli/plan_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/fit_json.h"
#include "atoll/cli/plan_config.h"
#include "atoll/cli/plan_measure.h"
#include "atoll/cli/plan_report.h"
#include "atoll/cli/scaling_table_options.h"
#include "atoll/cli/whole_number.h"
#include "atoll/plan/plan.h"
#include "atoll/run/config.h"
#include "atoll/run/process_place.h"
#include "atoll/run/run_folder.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(
PLAN.toml says which islands there are, and what is wanted (docs/scaling_plan.md has all keys):

  [[island]]                   one for each
  name = "zurich"
  devices = 8                  a process for each; they share its batches
  tflops = 200                 of a device, as it trains; or tokens_per_s = ... with params = ...
  precision = "bf16"           in which it has that speed (fp32)
  memory = "80GB"              of a device
  up = "200mbit"
  down = "200mbit"
  latency = "20ms"             round trip to the coordinator

  [goal]                       one or more of time, tokens, loss, params
  time = "14d"

  [train]                      what is fixed of train.*; may be left out
  precision = "bf16"           else that of the islands' speed
  shard = "zero1"              else the least that fits each island: none, zero1, on CPUs zero3
  activation_checkpointing = true

--measure prints an [[island]] of this machine: its speed with a small model, or that of --config
and --model.KEY=VALUE, --train.KEY=VALUE (--train.precision=bf16), and its line to --coordinator,
where `atoll coordinate` waits or runs. --processes-per-island N measures as many processes at once.
That takes about 20 seconds; a run that is under way is disturbed. The coordinator of an encrypted
run answers its members alone: --run is a member's folder, or one in which this machine becomes a
member by an invite, which `atoll join --run` then uses.

Examples:
  atoll plan PLAN.toml
  atoll plan PLAN.toml --config-out run.toml
  atoll plan PLAN.toml --json
  atoll plan --measure --coordinator 127.0.0.1:7070 --name here
  atoll plan --measure --coordinator @invite.txt --run runs/here
  atoll plan --measure --train.device=cuda --train.precision=bf16 --model.preset=chinchilla-180m
  atoll plan --measure --train.device=cuda --processes-per-island 8)";

struct PlanArguments {
  bool measures = false;
  MeasureOptions measure;
  std::string file;
  std::string config_out;
  bool json = false;
};

plan::PlanRequest read_request(const std::string& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (!error && size > plan::kMaxPlanBytes) {
    throw UsageError(fmt::format("{}: larger than {} MiB; a plan has a few lines for each island",
                                 file, plan::kMaxPlanBytes >> 20));
  }
  return plan::parse_plan(read_file(file), file);
}

/// A file that is named relative to the plan's folder.
std::optional<laws::Comparable> runs_of(const plan::PlanLaws& laws, const fs::path& folder) {
  if (laws.fit.empty()) return std::nullopt;
  return compared_runs(laws.fit, laws::read_table(folder / laws.fit, laws.read));
}

/// Neither the plan nor its runs are written over.
void require_no_input(const PlanArguments& arguments, const plan::PlanLaws& laws) {
  const auto is_output = [&](const fs::path& input) {
    std::error_code none_yet;
    return fs::equivalent(input, arguments.config_out, none_yet);
  };
  const fs::path runs = fs::path(arguments.file).parent_path() / laws.fit;
  if (!is_output(arguments.file) && (laws.fit.empty() || !is_output(runs))) return;
  throw UsageError(fmt::format("--config-out: '{}' is {}; give another file", arguments.config_out,
                               is_output(arguments.file) ? "the plan itself" : "the plan's runs"));
}

void plan(const PlanArguments& arguments) {
  if (arguments.file.empty()) {
    throw UsageError("which PLAN.toml? `atoll plan --help` shows one");
  }
  const plan::PlanRequest request = read_request(arguments.file);
  if (!arguments.config_out.empty()) {
    require_output_file(arguments.config_out, "--config-out");
    require_no_input(arguments, request.laws);
  }
  const auto own = runs_of(request.laws, fs::path(arguments.file).parent_path());
  const plan::Plan plan = plan::make_plan(request, own ? std::optional(own->runs) : std::nullopt);
  const std::string config = planned_config(request, plan);
  if (!arguments.config_out.empty()) {
    write_file_atomically(arguments.config_out, config);
    run::check(run::configure("", arguments.config_out, {}));  // As `atoll train` reads it.
  }
  if (arguments.json) {
    auto json = plan_json(request, plan, config);
    if (own) add_comparable_json(json["laws_of"], *own);
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("{}", plan_text(request, plan));
  if (!arguments.config_out.empty()) {
    fmt::print("\nsettings: {}\n", arguments.config_out);
  }
}

}  // namespace

void add_plan_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "plan", "What to train with these islands and links, and what it will come to");
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::Option* file =
      command->add_option("plan", arguments->file, "PLAN.toml")->check(CLI::ExistingFile);
  CLI::Option* config_out = command->add_option(
      "--config-out", arguments->config_out,
      "write the settings for `atoll train` and `atoll coordinate` to this file");
  command->add_flag("--json", arguments->json, "print one JSON object");
  CLI::Option* measure =
      command->add_flag("--measure", arguments->measures, "measure this machine and its line")
          ->excludes(file)
          ->excludes(config_out);
  MeasureOptions& options = arguments->measure;
  command
      ->add_option("--coordinator", options.line.coordinator,
                   "HOST:PORT, or an invite (\"-\": read from stdin, @FILE: from a file), to "
                   "measure the line to it")
      ->needs(measure);
  command
      ->add_option("--run", options.line.run,
                   "the folder of a member of an encrypted run; with an invite this machine "
                   "becomes one there")
      ->needs(measure);
  command->add_option("--config", options.config, "settings (TOML) of the model to measure with")
      ->check(CLI::ExistingFile)
      ->needs(measure);
  command
      ->add_option("--processes-per-island", options.processes,
                   "processes that the island will be, on this machine")
      ->check(whole_number<int>(1, run::kMostProcesses))
      ->needs(measure);
  command->add_option("--name", options.name, "of the island (default: this machine's)")
      ->needs(measure);
  command->add_option("--out", options.out, "also write the [[island]] to this file, a new one")
      ->needs(measure);
  command
      ->add_flag("--insecure", options.line.insecure,
                 "allow addresses beyond this machine, unencrypted")
      ->needs(measure);
  command->allow_extras();
  command->footer(kFooter);
  command->callback([arguments, command] {
    arguments->measure.overrides = overrides_from(command->remaining());
    if (arguments->measures) {
      arguments->measure.json = arguments->json;
      return measure_island(arguments->measure);
    }
    if (!arguments->measure.overrides.empty()) {
      throw UsageError(fmt::format("--{} is for --measure", arguments->measure.overrides[0]));
    }
    plan(*arguments);
  });
}

}  // namespace atl::cli
