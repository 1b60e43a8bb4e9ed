// The `atoll` command. It has no LibTorch, so it starts in milliseconds; subcommands that need
// LibTorch are listed here and run by atoll-torch, which this process becomes.
#include <CLI/CLI.hpp>
#include <array>
#include <string_view>

#include "atoll/base/process.h"
#include "atoll/cli/bench_command.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/coordinate_command.h"
#include "atoll/cli/create_command.h"
#include "atoll/cli/data_command.h"
#include "atoll/cli/installed_help.h"
#include "atoll/cli/plan_command.h"
#include "atoll/cli/relay_command.h"
#include "atoll/cli/scaling_command.h"
#include "atoll/cli/status_command.h"
#include "atoll/cli/tokenizer_command.h"
#include "atoll/cli/train_command.h"
#include "atoll/cli/version.h"

namespace {

struct TorchCommand {
  const char* name;
  const char* description;
};
constexpr std::array kTorchCommands = {
    TorchCommand{"join", "Join a run: this machine becomes one of its islands"},
    TorchCommand{"eval", "Measure a model on text: loss, perplexity, bits per byte"},
    TorchCommand{"generate", "Continue prompts with a model"},
    TorchCommand{"chat", "Talk with a model"},
    TorchCommand{"serve", "Serve a model behind OpenAI's API, or some of its layers"},
    TorchCommand{"gateway", "Answer OpenAI's API for a model that a swarm serves"},
    TorchCommand{"convert", "Write a model as a Hugging Face folder or a GGUF file"},
    TorchCommand{"kv", "Compress keys and values: profiles and measurements"},
};

}  // namespace

int main(int argc, char** argv) {
  atl::prepare_process();
  CLI::App app("Atoll trains, studies and serves language models on machines that are far apart.",
               "atoll");
  app.set_version_flag("--version", atl::cli::build_text());
  app.require_subcommand(1);
  app.footer("\n`atoll COMMAND --help` explains each command with an example.");
  for (const TorchCommand& command : kTorchCommands) {
    if (argc > 1 && std::string_view(argv[1]) == command.name) {
      try {
        if (argv[1] == std::string_view("join")) atl::cli::start_other_processes(argv);
        atl::cli::become_torch_program(argv);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "atoll: %s\n", error.what());
        return 1;
      }
    }
    app.add_subcommand(command.name, command.description);
  }
  atl::cli::add_train_command(app, argv, {});
  atl::cli::add_coordinate_command(app);
  atl::cli::add_create_command(app);
  atl::cli::add_invite_command(app);
  atl::cli::add_revoke_command(app);
  atl::cli::add_relay_command(app);
  atl::cli::add_status_command(app);
  atl::cli::add_data_command(app);
  atl::cli::add_tokenizer_command(app);
  atl::cli::add_scaling_command(app);
  atl::cli::add_plan_command(app);
  atl::cli::add_bench_command(app, argv);
  atl::cli::add_installed_help(app);
  return atl::cli::run_app(app, argc, argv);
}
