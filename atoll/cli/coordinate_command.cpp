#include "atoll/cli/coordinate_command.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/base/random.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/whole_number.h"
#include "atoll/net/address.h"
#include "atoll/net/grpc_transport.h"
#include "atoll/net/http_server.h"
#include "atoll/run/config.h"
#include "atoll/run/coordinator_file.h"
#include "atoll/swarm/coordinator_server.h"
#include "atoll/swarm/journal.h"
#include "atoll/swarm/status_board.h"
#include "atoll/sync/method.h"

namespace atl::cli {
namespace {

struct CoordinateArguments {
  std::filesystem::path config_file;
  std::string listen = "127.0.0.1:7070";
  int64_t min_replicas = 0;   // 0: as the settings say.
  std::filesystem::path run;  // The run's folder; may be empty.
  std::string http = "127.0.0.1:0";
  bool insecure = false;
};

constexpr int64_t kLeastStepsAhead = 16;  // For which islands have rows.

constexpr const char* kFooter = R"(
Prints its address, then waits until swarm.replicas islands have joined and starts them. Islands may
be lost, come back and join while the run goes on. With --run it keeps a journal: started again with
the same one it goes on where it was. Ctrl-C: the islands checkpoint after the next sync and end.
Any shared setting can be given as --section.key=value. How it goes is told over HTTP, on this
machine only: `atoll status` shows it, and Prometheus reads /metrics.

Examples:
  atoll coordinate --config run.toml --run runs/ours             on one machine
  atoll join 127.0.0.1:7070 --run runs/here                      on each island
  atoll status runs/ours                                         how it goes)";

/// The settings that all islands share, as TOML: what belongs to one machine stays out.
std::string shared_toml(const std::map<std::string, std::string>& shared) {
  std::string text;
  std::string section;
  for (const auto& [name, value] : shared) {  // Sorted, so a section's keys are together.
    const size_t dot = name.find('.');
    if (name.substr(0, dot) != section) {
      section = name.substr(0, dot);
      text += fmt::format("[{}]\n", section);
    }
    text += fmt::format("{} = {}\n", name.substr(dot + 1), value);
  }
  return text;
}

/// With the time of day, in ms: what happened is told apart from what the islands' logs say.
void print_log(const std::string& line) {
  const double now = wall_time();
  const auto whole = static_cast<std::time_t>(now);
  fmt::print(stderr, "coordinator: {:%H:%M:%S}.{:03} {}\n", fmt::localtime(whole),
             static_cast<int>(1000 * (now - static_cast<double>(whole))), line);
  std::fflush(stderr);
}

/// Shows the islands' progress now and then, when there is any.
class ProgressLog {
 public:
  explicit ProgressLog(const Clock& clock) : clock_(clock) {}

  void update(const std::vector<swarm::IslandStatus>& islands) {
    std::string line;
    for (const auto& island : islands) {
      if (!island.loss || !island.tokens_per_s) continue;
      line +=
          fmt::format("{}{} step {}, loss {:.4f}, {} tokens/s{}", line.empty() ? "" : " | ",
                      island.name, island.step, *island.loss, format_count(*island.tokens_per_s),
                      island.state == swarm::IslandState::kLeft ? ", done" : "");
    }
    if (line.empty() || line == last_ || clock_.now() - printed_ < std::chrono::seconds(10)) return;
    print_log(line);
    last_ = line;
    printed_ = clock_.now();
  }

 private:
  const Clock& clock_;
  std::string last_;
  Time printed_{};
};

/// What islands are told to join: the address that was bound, but "any" is no place to go to.
std::string address_for_islands(const std::string& bound) {
  auto address = net::parse_address(bound);
  if (!address || (address->host != "0.0.0.0" && address->host != "::")) return bound;
  return fmt::format("THIS_MACHINE:{}", address->port);
}

/// What the journal says of the run, whose settings must be the same still.
swarm::Book book_of(const swarm::Journal* journal, const std::string& config) {
  if (journal == nullptr) return {};
  const swarm::Book& book = journal->book();
  if (book.has_begun() && book.config() != config) {
    throw UsageError(
        "the run that this folder's journal is of was started with other settings; start its "
        "coordinator with the same, or choose another --run");
  }
  return book;
}

/// Empty when the user wants none. Throws UsageError for an address that others could read.
std::unique_ptr<net::HttpServer> serve_status(const std::string& where, swarm::StatusBoard& board,
                                              const Clock& clock) {
  if (where == "off") return nullptr;
  net::require_address("--http", where);
  if (!net::is_loopback(*net::parse_address(where))) {
    throw UsageError(fmt::format(
        "--http: {} is not on this machine; only loopback addresses are served for now (from "
        "elsewhere: ssh -L PORT:127.0.0.1:PORT, then ask the near end)",
        where));
  }
  auto server = net::HttpServer::start(
      where, [&](const std::string& path) { return board.reply(path); }, clock);
  if (!server) throw InputError("--http: " + server.error().message);
  return std::move(*server);
}

/// When all islands die: one checkpoint may be on its way to the disk, and another be due.
int64_t most_lost(const run::RunConfig& config) {
  if (config.train.checkpoint_every == 0) return INT64_MAX;
  return 2 * config.train.checkpoint_every + 3 * sync::max_steps_apart(config.sync);
}

swarm::CoordinatorOptions options_of(const run::RunConfig& config, const std::string& run,
                                     const std::map<std::string, std::string>& shared) {
  return {.run = run,
          .config = shared_toml(shared),
          .settings = shared,
          .replicas = config.swarm.num_replicas(),
          .min_replicas = config.swarm.min_replicas,
          .steps = config.train.steps,
          .num_fragments = sync::num_fragments(config.sync),
          .takes_newcomers = run::takes_newcomers(config),
          .keeps_rounds = run::keeps_rounds(config),
          .most_lost = most_lost(config),
          .most_ahead = config.swarm.is_elastic() ? 0 : sync::max_steps_apart(config.sync),
          .steps_ahead = std::max(kLeastStepsAhead, sync::period(config.sync)),
          .round_units =
              config.swarm.is_elastic() ? config.sync.sync_every * config.swarm.num_replicas() : 0,
          .outlier_factor = config.swarm.outlier_factor,
          .least_term = static_cast<uint64_t>(wall_time()),
          .silence_timeout =
              std::chrono::milliseconds(static_cast<int64_t>(config.swarm.silence_timeout * 1000))};
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

run::RunConfig config_of(const CoordinateArguments& arguments, std::vector<std::string> overrides) {
  warn_of_local(overrides);
  if (arguments.min_replicas > 0) {
    overrides.push_back(fmt::format("swarm.min_replicas={}", arguments.min_replicas));
  }
  run::RunConfig config = run::load_config(arguments.config_file, overrides);
  run::choose_method(config, /*alone=*/false);
  run::check(config);
  run::check_used(config, overrides);
  return config;
}

void coordinate(const CoordinateArguments& arguments, const std::vector<std::string>& overrides) {
  net::require_address("--listen", arguments.listen);
  run::RunConfig config = config_of(arguments, overrides);
  const auto shared = config.settings().shared();
  if (arguments.insecure) {
    fmt::print(stderr,
               "atoll: warning: --insecure: connections are neither encrypted nor "
               "authenticated; anyone on the network can read and alter the run\n");
  }
  watch_interrupts();
  const SystemClock clock;
  ProgressLog progress(clock);
  std::optional<swarm::Journal> journal;
  if (!arguments.run.empty()) {
    std::filesystem::create_directories(arguments.run);
    journal.emplace(arguments.run / "coordinator.journal");
  }
  swarm::Book book = book_of(journal ? &*journal : nullptr, shared_toml(shared));
  const swarm::CoordinatorOptions options =
      options_of(config, book.has_begun() ? book.run() : random_name(), shared);
  const double started_at = wall_time();
  swarm::StatusBoard board({.run = options.run, .wanted = options.replicas}, clock);
  const auto http = serve_status(arguments.http, board, clock);
  const auto show = [&](swarm::RunStatus status) {
    progress.update(status.islands);
    status.started_at = started_at;
    board.publish(std::move(status));
  };
  swarm::CoordinatorServer server(
      options, std::move(book),
      {.persist =
           [&](const swarm::Record& record) {
             if (journal) journal->append(record);
           },
       .on_log = print_log,
       .on_progress = show},
      [&](net::Transport::Sink sink) {
        return net::make_grpc_transport({.insecure = arguments.insecure}, clock, std::move(sink));
      },
      clock);
  const auto address = server.listen(arguments.listen);
  if (!address) throw InputError(address.error().message);
  std::optional<run::CoordinatorFile> file;
  if (!arguments.run.empty()) {
    file.emplace(arguments.run,
                 run::place_here(options.run, *address, http ? http->address() : ""));
  }
  fmt::print("{}\n", *address);
  std::fflush(stdout);  // A launcher reads it.
  print_log(fmt::format("run {} waits for {} islands: atoll join {}", options.run, options.replicas,
                        address_for_islands(*address)));
  if (http) print_log(fmt::format("status at http://{}/status", http->address()));
  if (const auto result = server.run(num_interrupts); !result) {
    throw InputError(result.error().message);
  }
}

}  // namespace

void add_coordinate_command(CLI::App& app) {
  auto* command = app.add_subcommand("coordinate", "Agree membership and rounds among islands");
  auto arguments = std::make_shared<CoordinateArguments>();
  command->add_option("--config", arguments->config_file, "TOML file with the run's settings")
      ->check(CLI::ExistingFile);
  command->add_option("--listen", arguments->listen, "HOST:PORT; port 0: the system chooses")
      ->capture_default_str();
  command
      ->add_option("--min-replicas", arguments->min_replicas, "islands without which rounds wait")
      ->check(whole_number<int>(1, 1024));
  command->add_option("--run", arguments->run,
                      "the run's folder: for the journal, and for `atoll status`");
  command
      ->add_option("--http", arguments->http,
                   "HOST:PORT on this machine for /status and /metrics, or \"off\"")
      ->capture_default_str();
  command->add_flag("--insecure", arguments->insecure,
                    "allow addresses beyond this machine, unencrypted");
  command->allow_extras();
  command->footer(kFooter);
  command->callback(
      [command, arguments] { coordinate(*arguments, overrides_from(command->remaining())); });
}

}  // namespace atl::cli
