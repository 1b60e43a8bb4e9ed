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
#include "atoll/cli/plan_config.h"
#include "atoll/cli/plan_report.h"
#include "atoll/run/config.h"
#include "atoll/run/run_folder.h"
#include "atoll/scaling/plan.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter = R"(
PLAN.toml says which islands there are, and what is wanted (docs/scaling.md has all keys):

  [[island]]                   one for each
  name = "zurich"
  devices = 8                  that share its batches
  tflops = 200                 of a device, as it trains; or tokens_per_s = ... with params = ...
  memory = "80GB"              of a device
  up = "200mbit"
  down = "200mbit"
  latency = "20ms"             round trip

  [goal]                       one or more of time, tokens, loss, params
  time = "14d"

Examples:
  atoll plan PLAN.toml
  atoll plan PLAN.toml --config-out run.toml
  atoll plan PLAN.toml --json)";

struct PlanArguments {
  std::string file;
  std::string config_out;
  bool json = false;
};

scaling::PlanRequest read_request(const std::string& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (!error && size > scaling::kMaxPlanBytes) {
    throw UsageError(fmt::format("{}: larger than {} MiB; a plan has a few lines for each island",
                                 file, scaling::kMaxPlanBytes >> 20));
  }
  return scaling::parse_plan(read_file(file), file);
}

/// A file that is named relative to the plan's folder.
std::optional<std::vector<scaling::Run>> runs_of(const scaling::PlanLaws& laws,
                                                 const fs::path& folder) {
  if (laws.fit.empty()) return std::nullopt;
  return scaling::read_table(folder / laws.fit, laws.read).runs;
}

void plan(const PlanArguments& arguments) {
  if (arguments.file.empty()) {
    throw UsageError("which PLAN.toml? `atoll plan --help` shows one");
  }
  const scaling::PlanRequest request = read_request(arguments.file);
  if (!arguments.config_out.empty()) require_output_file(arguments.config_out, "--config-out");
  const scaling::Plan plan =
      scaling::make_plan(request, runs_of(request.laws, fs::path(arguments.file).parent_path()));
  const std::string config = planned_config(request, plan);
  if (!arguments.config_out.empty()) {
    write_file_atomically(arguments.config_out, config);
    run::check(run::configure("", arguments.config_out, {}));  // As `atoll train` reads it.
  }
  if (arguments.json) {
    fmt::print("{}\n", plan_json(request, plan, config).dump());
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
  command->add_option("plan", arguments->file, "PLAN.toml")->check(CLI::ExistingFile);
  command->add_option("--config-out", arguments->config_out,
                      "write the settings for `atoll train` and `atoll coordinate` to this file");
  command->add_flag("--json", arguments->json, "print one JSON object");
  command->footer(kFooter);
  command->callback([arguments] { plan(*arguments); });
}

}  // namespace atl::cli
