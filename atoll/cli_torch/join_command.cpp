#include "atoll/cli_torch/join_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "atoll/base/clock.h"
#include "atoll/base/interrupt.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/train_command.h"
#include "atoll/cli_torch/island_processes.h"
#include "atoll/cli_torch/layers_of_servers.h"
#include "atoll/island/island.h"
#include "atoll/run/launcher.h"
#include "atoll/run/link_rate.h"
#include "atoll/run/live_view.h"
#include "atoll/run/run_folder.h"

namespace atl::cli {
namespace {

struct JoinArguments {
  island::JoinOptions options;
  std::string folder;
  std::string data;
  FrozenArguments frozen;
  std::string link_rate;
  bool json = false;
  bool messages = false;
  bool together = false;
  int64_t processes = 0;
};

constexpr const char* kFooter = R"(
The run's settings come from the coordinator; settings given here must be the same, except those of
this machine: --data, --train.threads, --train.device, --sync.outer_device and others. A run that is
under way takes new islands, and takes back those that were lost. SIGTERM: this island leaves once
what it had learned is with the others, who go on; Ctrl-C: all checkpoint after the next sync and
end.

An invite makes this machine a member of an encrypted run: a key is made here, which never leaves,
and the coordinator certifies it. Afterwards the folder is enough. Where nobody answers at the
coordinator's address, and it is on the same LAN, it is found there.

Examples:
  atoll join @invite.txt --run runs/here                         by an invite of `atoll create`
  atoll join --run runs/here                                     again, later
  atoll coordinate --config run.toml --listen 127.0.0.1:7070     on one machine, in the clear
  atoll join 127.0.0.1:7070 --run runs/here                      on each island
  atoll join 127.0.0.1:7070/ours --run runs/here                 one of several runs there)";

void print_message(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);  // The launcher reads it live.
}

/// Who follows has nothing to say to the coordinator, and reads no invite: stdin is process 0's.
bool follows(JoinArguments& arguments, std::unique_ptr<group::Processes>& processes) {
  const auto place = run::process_place(run::process_environment(), arguments.processes);
  if (!place) return false;
  AskedOfProcess asked{.place = *place, .overrides = arguments.options.overrides};
  FrozenArguments frozen = arguments.frozen;
  frozen.servers.clear();
  add_frozen_overrides(frozen, asked.overrides);
  asked.timeout_s = run::load_config({}, asked.overrides).train.process_timeout;
  if (!place->leads()) {
    follow_here(asked);
    return true;
  }
  processes = meet_others(asked);
  arguments.options.processes = processes.get();
  return false;
}

void join(JoinArguments& arguments) {
  if (!arguments.link_rate.empty()) {
    arguments.options.link_rate_bits_per_s = run::parse_link_rate(arguments.link_rate);
  }
  if (arguments.options.insecure) warn_insecure();
  if (!arguments.data.empty()) arguments.options.overrides.push_back("data.path=" + arguments.data);
  std::unique_ptr<group::Processes> processes;
  if (follows(arguments, processes)) return;
  arguments.frozen.servers = servers_said(arguments.frozen.servers);
  add_frozen_overrides(arguments.frozen, arguments.options.overrides);
  arguments.options.folder = arguments.folder;
  if (!arguments.options.coordinator.empty()) {
    arguments.options.coordinator = invite_said("coordinator", arguments.options.coordinator);
  }
  const SystemClock clock;
  const LayersOfServers layers_of_servers(clock);
  arguments.options.find_servers = layers_of_servers.finder();
  watch_interrupts();
  if (!arguments.together) leave_on_terminate();
  std::optional<run::LiveView> view;
  if (!arguments.messages)
    view.emplace(std::vector<std::string>{arguments.options.name.empty() ? "island"
                                                                         : arguments.options.name},
                 clock);
  const run::Summary summary =
      island::join_run(arguments.options, clock, [&](const run::Progress& progress) {
        if (view) view->update(0, run::progress_line(progress));
        if (arguments.messages) print_message(run::progress_message(progress));
      });
  view.reset();
  if (processes) processes->done();
  processes.reset();
  if (arguments.messages) {
    print_message(run::summary_message(summary));
  } else if (arguments.json) {
    fmt::print("{}\n", run::to_json(summary));
  } else {
    fmt::print("validation loss {:.4f} after {} steps; global model {}\n", summary.val_loss,
               summary.steps, summary.digest);
  }
}

}  // namespace

void add_join_command(CLI::App& app) {
  auto* command = app.add_subcommand("join", "Join a run: this machine becomes one of its islands");
  auto arguments = std::make_shared<JoinArguments>();
  auto& options = arguments->options;
  command->add_option("coordinator", options.coordinator,
                      "an invite (\"-\": read from stdin, @FILE: from a file), or HOST:PORT of the "
                      "coordinator, with /NAME where it has several runs");
  command->add_option("--run", arguments->folder, "this island's run directory");
  command->add_option("--name", options.name,
                      "this island's name (default: made up once, then kept)");
  command->add_option("--data", arguments->data, "token store, or text to make one of");
  add_init_options(*command, options.init);
  add_frozen_options(*command, arguments->frozen);
  command->add_option("--listen", options.listen,
                      "HOST:PORT where other islands reach this one (default: as the coordinator "
                      "sees this machine)");
  command->add_option("--advertise", options.advertise,
                      "HOST:PORT that other islands are told instead, e.g. a forwarded port");
  add_processes_option(*command, arguments->processes);
  command->add_option("--link-rate", arguments->link_rate,
                      "hold this island's sending side, e.g. 20mbit");
  command->add_flag("--insecure", options.insecure,
                    "allow addresses beyond this machine, unencrypted");
  command->add_flag("--json", arguments->json, "print the result as one JSON object");
  command
      ->add_flag("--messages", arguments->messages,
                 "progress as JSON lines on stdout (for a launcher)")
      ->group("");
  command->add_flag("--together", arguments->together, "SIGTERM, as Ctrl-C, is for all islands")
      ->group("");
  command->allow_extras();
  command->footer(kFooter);
  command->callback([command, arguments] {
    arguments->options.overrides = overrides_from(command->remaining());
    join(*arguments);
  });
}

}  // namespace atl::cli
