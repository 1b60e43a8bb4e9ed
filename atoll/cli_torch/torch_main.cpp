// The subcommands of `atoll` that need LibTorch; started by `atoll`, not by people.
#include <ATen/Context.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "atoll/base/clock.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/command_tree.h"
#include "atoll/cli/train_command.h"
#include "atoll/cli/version.h"
#include "atoll/cli_torch/bench_command.h"
#include "atoll/cli_torch/chat_command.h"
#include "atoll/cli_torch/convert_command.h"
#include "atoll/cli_torch/eval_command.h"
#include "atoll/cli_torch/gateway_command.h"
#include "atoll/cli_torch/generate_command.h"
#include "atoll/cli_torch/island_processes.h"
#include "atoll/cli_torch/join_command.h"
#include "atoll/cli_torch/kv_command.h"
#include "atoll/cli_torch/layers_of_servers.h"
#include "atoll/cli_torch/serve_command.h"
#include "atoll/island/island.h"
#include "atoll/model/pooled_tensors.h"
#include "atoll/model/spinning.h"
#include "atoll/run/live_view.h"
#include "atoll/run/run_folder.h"

namespace {

void train_here(const atl::cli::TrainRequest& request, atl::group::Processes* processes) {
  const atl::SystemClock clock;
  atl::watch_interrupts();
  std::optional<atl::run::LiveView> view;
  view.emplace(std::vector<std::string>{"train"}, clock);
  const atl::cli::LayersOfServers layers_of_servers(clock);
  const auto summary = atl::island::train_alone(
      request.config, request.folder, request.init, layers_of_servers.finder(), clock,
      [&](const auto& progress) { view->update(0, atl::run::progress_line(progress)); }, processes);
  view.reset();
  if (processes != nullptr) processes->done();
  if (request.json) {
    fmt::print("{}\n", atl::run::to_json(summary));
  } else if (summary.stopped) {
    fmt::print("stopped at step {}; resume: {}\n", summary.steps,
               atl::run::resume_command(summary.run, 1));
  } else if (summary.steps_now == 0) {
    fmt::print("already complete: validation loss {:.4f} (start {:.4f}) after {} steps\n",
               summary.val_loss, summary.val_loss_start, summary.steps);
    fmt::print("run directory: {}\n", summary.run);
  } else {
    fmt::print(
        "validation loss {:.4f} (start {:.4f}) after {} steps and {} tokens, {:.0f} tokens/s\n",
        summary.val_loss, summary.val_loss_start, summary.steps, summary.tokens,
        summary.tokens_per_s);
    fmt::print("run directory: {}\n", summary.run);
  }
}

}  // namespace

int main(int argc, char** argv) {
  atl::prepare_process();
  // Denormal numbers cost the processor a hundred times a normal one's time and mean nothing here;
  // threads started later inherit this.
  at::globalContext().setFlushDenormal(true);
  atl::keep_freed_memory();
  const atl::model::PooledTensors pooled;
  const atl::model::Spinning spinning;
  CLI::App app("Atoll: the commands that need LibTorch.", "atoll");
  app.set_version_flag("--version", atl::cli::build_text());
  app.require_subcommand(1);
  std::unique_ptr<atl::group::Processes> processes;  // Of this island, if this one leads several.
  atl::cli::add_train_command(
      app, argv,
      {.train = [&](const auto& request) { train_here(request, processes.get()); },
       .meet = [&](const auto& asked) { processes = atl::cli::meet_others(asked); },
       .follow = atl::cli::follow_here});
  atl::cli::add_join_command(app);
  atl::cli::add_eval_command(app);
  atl::cli::add_generate_command(app);
  atl::cli::add_chat_command(app);
  atl::cli::add_serve_command(app);
  atl::cli::add_gateway_command(app);
  atl::cli::add_convert_command(app);
  atl::cli::add_kv_command(app);
  atl::cli::add_bench_command(app);
  atl::cli::add_command_list(app);
  return atl::cli::run_app(app, argc, argv);
}
