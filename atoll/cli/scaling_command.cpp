#include "atoll/cli/scaling_command.h"

#include <CLI/CLI.hpp>

namespace atl::cli {

void add_scaling_command(CLI::App& app) {
  CLI::App* scaling = app.add_subcommand(
      "scaling", "Scaling laws: fit them to runs, predict a run, simulate links, sweep settings");
  scaling->require_subcommand(1);
  add_scaling_fit(*scaling);
  add_scaling_predict(*scaling);
  add_scaling_simulate(*scaling);
  add_scaling_sweep(*scaling);
}

}  // namespace atl::cli
