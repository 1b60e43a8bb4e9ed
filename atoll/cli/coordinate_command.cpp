#include "atoll/cli/coordinate_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/encrypted_run.h"
#include "atoll/cli/whole_number.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/coordinator/run_router.h"
#include "atoll/coordinator/status_board.h"
#include "atoll/net/address.h"
#include "atoll/net/http_server.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/run/config.h"
#include "atoll/run/coordinated_run.h"
#include "atoll/run/run_authority.h"
#include "atoll/run/run_folder.h"
#include "atoll/swarm/rules.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

struct CoordinateArguments {
  std::vector<std::string> configs;
  std::string listen;             // Empty: this machine, or any of its addresses if encrypted.
  int64_t min_replicas = 0;       // 0: as the settings say.
  std::vector<std::string> runs;  // Folders; empty: one run without a journal.
  std::string http = "127.0.0.1:0";
  std::vector<std::string> https;  // None, or one for each run.
  std::vector<std::string> https_names;
  bool insecure = false;
  bool no_discovery = false;
  bool together = false;
};

constexpr const char* kFooter = R"(
Prints its address, then waits until swarm.replicas islands have joined and starts them. Islands may
be lost, come back and join while the run goes on. With --run it keeps a journal: started again with
the same one it goes on where it was. Ctrl-C: the islands checkpoint after the next sync and end.
Servers of a model's layers need no islands (`atoll serve MODEL --join`): it then keeps their
directory, tells when all layers are served, and ends well when it is asked to.
Any shared setting can be given as --section.key=value. How it goes is told over HTTP, on this
machine only: `atoll status` shows it, and Prometheus reads /metrics.

Several runs on one coordinator: a --config and a --run for each, in the same order. A run is called
as its folder is, and islands join it by that name. Settings given as --section.key=value are for
all of them. Each begins, fails and ends by itself; the coordinator ends with the last.

A run that `atoll create` made is encrypted, and only the invited take part. Several share an
address as others do: an invite and a certificate are for one of them. Its settings may lie in its
folder (config.toml). With --https readers on other machines see how it goes, by a token
(`atoll invite RUN --role reader --token`) or a member's certificate. Members on the same LAN find
its coordinator also where its address is another than they know: it answers who asks there by
multicast (UDP port 7070) for this very run; --no-discovery: it does not.

Examples:
  atoll coordinate --run runs/ours                               a run that was created
  atoll coordinate --run runs/ours --https 0.0.0.0:9443          and told to readers anywhere
  atoll coordinate --config run.toml --run runs/ours             on one machine, in the clear
  atoll join 127.0.0.1:7070 --run runs/here                      on each island
  atoll status runs/ours                                         how it goes

  atoll coordinate --run runs/ours --run runs/theirs             two that were created
  atoll coordinate --config a.toml --run runs/a --config b.toml --run runs/b
  atoll join 127.0.0.1:7070/a --run runs/here                    on each island of a)";

/// Empty when the user wants none. Throws UsageError for an address that others could read.
std::unique_ptr<net::HttpServer> serve_status(const std::string& where, swarm::StatusBoard& board,
                                              const Clock& clock) {
  if (where == "off") return nullptr;
  net::require_address("--http", where);
  if (!net::is_loopback(*net::parse_address(where))) {
    throw UsageError(fmt::format(
        "--http: {} is not on this machine; only loopback addresses are served in the clear (for "
        "readers elsewhere: --https, or ssh -L PORT:127.0.0.1:PORT, then ask the near end)",
        where));
  }
  auto server = net::HttpServer::start(
      where, [&](const net::HttpRequest& request) { return board.reply(request.path); }, clock);
  if (!server) throw InputError("--http: " + server.error().message);
  return std::move(*server);
}

/// What belongs to each island is of no use here.
void warn_of_local(const std::vector<std::string>& overrides) {
  run::RunConfig config;
  const SettingList list = config.settings();
  for (const Setting& setting : list.settings()) {
    const bool is_given = std::ranges::any_of(overrides, [&](const std::string& assignment) {
      return assignment.starts_with(setting.name() + "=");
    });
    if (setting.local && is_given) {
      fmt::print(stderr,
                 "atoll: warning: {} is each island's own and has no effect here; give it to atoll "
                 "join\n",
                 setting.name());
    }
  }
}

std::vector<run::CoordinatedRun::Request> requests_of(const CoordinateArguments& arguments) {
  const std::vector<std::string>& configs = arguments.configs;
  const std::vector<std::string>& runs = arguments.runs;
  const size_t num_runs = std::max({configs.size(), runs.size(), size_t{1}});
  if (num_runs > 1 && configs.size() != runs.size()) {
    throw UsageError(fmt::format(
        "several runs need a --config and a --run each, in the same order; here are {} --config "
        "and {} --run",
        configs.size(), runs.size()));
  }
  std::vector<run::CoordinatedRun::Request> requests(num_runs);
  for (size_t i = 0; i < num_runs; ++i) {
    requests[i].is_only = num_runs == 1;
    requests[i].ends_together = arguments.together;
    if (i < configs.size()) requests[i].config = configs[i];
    if (i >= runs.size() || runs[i].empty()) continue;
    requests[i].folder = runs[i];
    const std::string name = run::name_of_run(runs[i]);
    // One that is alone is found without a name.
    if (num_runs > 1 || swarm::is_valid_name(name)) requests[i].name = name;
  }
  std::vector<std::string> names;
  for (const auto& request : requests) names.push_back(request.name);
  swarm::require_names(names);
  return requests;
}

/// Of runs that were created, one for each in their order; empty where all are in the clear.
std::deque<EncryptedRun> encrypted_runs(const CoordinateArguments& arguments,
                                        std::deque<run::CoordinatedRun>& runs, const Clock& clock) {
  const auto& folders = arguments.runs;
  const auto created = std::ranges::find_if(folders, run::has_authority);
  if (created == folders.end()) return {};
  if (arguments.insecure) {
    throw UsageError(fmt::format("--insecure: '{}' was created as an encrypted run", *created));
  }
  const auto plain = std::ranges::find_if_not(folders, run::has_authority);
  if (plain != folders.end()) {
    throw UsageError(fmt::format(
        "'{}' was created as an encrypted run, and '{}' is in the clear: they need a coordinator "
        "each",
        *created, *plain));
  }
  std::deque<EncryptedRun> encrypted;
  for (size_t i = 0; i < folders.size(); ++i) {
    encrypted.emplace_back(
        folders[i], [&run = runs[i]](const Event& event) { run.note(event); },
        runs[i].first_status(), clock);
  }
  return encrypted;
}

/// Each run's own readers at an address of their own.
void serve_web(const CoordinateArguments& arguments, std::deque<EncryptedRun>& encrypted) {
  const auto& places = arguments.https;
  if (places.empty()) {
    if (!arguments.https_names.empty()) throw UsageError("--https-name is for --https");
    return;
  }
  if (encrypted.empty()) {
    throw UsageError(
        "--https is for a run that 'atoll create' made: its authority signs the server's "
        "certificate, and says who may read");
  }
  if (places.size() != encrypted.size()) {
    throw UsageError(fmt::format(
        "each run has readers of its own: --https once for each, in their order; here are {} "
        "--https and {} --run",
        places.size(), encrypted.size()));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string address = encrypted[i].serve_readers(places[i], arguments.https_names);
    run::print_log(fmt::format("for readers{} at https://{}/status",
                               places.size() > 1 ? " of " + arguments.runs[i] : "", address));
  }
}

/// The folders of created runs may have their settings.
void find_configs(CoordinateArguments& arguments) {
  if (!arguments.configs.empty()) return;
  for (const std::string& folder : arguments.runs) {
    const fs::path config = fs::path(folder) / "config.toml";
    if (run::has_authority(folder) && fs::exists(config)) {
      arguments.configs.push_back(config.string());
    }
  }
}

void coordinate(CoordinateArguments arguments, std::vector<std::string> overrides) {
  find_configs(arguments);
  warn_of_local(overrides);
  if (arguments.min_replicas > 0) {
    overrides.push_back(fmt::format("swarm.min_replicas={}", arguments.min_replicas));
  }
  const SystemClock clock;
  std::deque<run::CoordinatedRun> runs;
  for (auto& request : requests_of(arguments))
    runs.emplace_back(std::move(request), overrides, clock);
  if (arguments.insecure) warn_insecure();
  watch_interrupts();
  std::deque<EncryptedRun> encrypted = encrypted_runs(arguments, runs, clock);
  if (arguments.listen.empty()) {
    arguments.listen = encrypted.empty() ? "127.0.0.1:7070" : "0.0.0.0:7070";
  }
  net::require_address("--listen", arguments.listen);
  std::vector<swarm::RunStatus> statuses;
  for (const run::CoordinatedRun& run : runs) statuses.push_back(run.first_status());
  swarm::StatusBoard board(std::move(statuses), clock);
  const auto http = serve_status(arguments.http, board, clock);
  serve_web(arguments, encrypted);
  std::vector<swarm::ServedRun> served;
  for (run::CoordinatedRun& run : runs) {
    const size_t number = served.size();
    EncryptedRun* const own = encrypted.empty() ? nullptr : &encrypted[number];
    served.push_back(run.served([&board, number, own](swarm::RunStatus status) {
      if (own != nullptr) own->publish(status);
      board.publish(number, std::move(status));
    }));
    if (own != nullptr) served.back().authority = own->callbacks();
  }
  net::TransportOptions options{.insecure = arguments.insecure, .takes_joins = true};
  for (const EncryptedRun& run : encrypted) {
    if (options.trust) {
      options.more_trusts.push_back(run.trust());
    } else {
      options.trust = run.trust();
    }
  }
  swarm::CoordinatorServer server(
      std::move(served),
      [&](net::Transport::Sink sink) {
        return net::make_tcp_transport(options, clock, std::move(sink));
      },
      clock, run::print_log);
  const auto address = server.listen(arguments.listen);
  if (!address) throw InputError(address.error().message);
  if (!arguments.no_discovery) {
    for (EncryptedRun& run : encrypted) run.be_found(*address);
  }
  for (run::CoordinatedRun& run : runs) run.leave_file(*address, http ? http->address() : "");
  fmt::print("{}\n", *address);
  std::fflush(stdout);  // A launcher reads it.
  for (run::CoordinatedRun& run : runs) run.announce(*address);
  if (http) run::print_log(fmt::format("status at http://{}/status", http->address()));
  if (const auto result = server.run(num_interrupts); !result) {
    throw InputError(result.error().message);
  }
}

}  // namespace

void add_coordinate_command(CLI::App& app) {
  auto* command = app.add_subcommand("coordinate", "Agree membership and rounds among islands");
  auto arguments = std::make_shared<CoordinateArguments>();
  command
      ->add_option("--config", arguments->configs,
                   "TOML file with the run's settings; once for each run")
      ->check(CLI::ExistingFile)
      ->allow_extra_args(false);
  command->add_option("--listen", arguments->listen,
                      "HOST:PORT; port 0: the system chooses (default: 127.0.0.1:7070, of an "
                      "encrypted run 0.0.0.0:7070)");
  command
      ->add_option("--min-replicas", arguments->min_replicas, "islands without which rounds wait")
      ->check(whole_number<int>(1, 1024));
  command
      ->add_option("--run", arguments->runs,
                   "the run's folder: for the journal, and for `atoll status`; once for each run")
      ->allow_extra_args(false);
  command
      ->add_option("--http", arguments->http,
                   "HOST:PORT on this machine for /status and /metrics, or \"off\"")
      ->capture_default_str();
  command
      ->add_option("--https", arguments->https,
                   "HOST:PORT of the same over HTTPS, for readers on other machines, of a run that "
                   "was created; once for each run")
      ->allow_extra_args(false);
  command
      ->add_option("--https-name", arguments->https_names,
                   "a host by which readers ask --https, which its certificate then names; may be "
                   "given several times (this machine's addresses are known)")
      ->allow_extra_args(false);
  command->add_flag("--insecure", arguments->insecure,
                    "allow addresses beyond this machine, unencrypted");
  command->add_flag("--no-discovery", arguments->no_discovery,
                    "answer nobody who asks the LAN where this run's coordinator is");
  command->add_flag("--together", arguments->together, "nobody trains on without who is lost")
      ->group("");
  command->allow_extras();
  command->footer(kFooter);
  command->callback(
      [command, arguments] { coordinate(*arguments, overrides_from(command->remaining())); });
}

}  // namespace atl::cli
