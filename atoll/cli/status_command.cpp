#include "atoll/cli/status_command.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/result.h"
#include "atoll/cli/reader_options.h"
#include "atoll/cli/status_events.h"
#include "atoll/coordinator/status.h"
#include "atoll/net/address.h"
#include "atoll/net/http_client.h"
#include "atoll/run/coordinator_file.h"
#include "atoll/swarm/rules.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr Duration kPatience = std::chrono::seconds(10);
constexpr size_t kMaxBytes = size_t{16} << 20;

constexpr std::string_view kHttps = "https://";

constexpr const char* kFooter = R"(
Without a place it asks the coordinator of the one folder below runs/ in which one runs.

Where a coordinator has several runs, its address shows all and a run's folder shows that one.

With --events a run's folder tells what happened in it, and in its islands' folders below; an
island's folder tells of that island. That needs no coordinator.

An https:// address is asked from any machine, and known by the run's authority: a member asks with
its folder, others with a token (`atoll invite RUN --role reader --token`) and the authority's
certificate or fingerprint. The token is sent only to who has proved to be that server.

Live counts islands that are heard; "in the last commit" those whose parts it awaited; the share of
tokens averaged is of what they could have brought. An ALARM says who is live without taking part.

Examples:
  atoll status runs/two                       once
  atoll status runs/two --watch 2             until the run is over, or Ctrl-C
  atoll status runs/two --events              what happened so far
  atoll status 127.0.0.1:41937 --json         for a program; the coordinator logs this address
  atoll status 127.0.0.1:41937/ours           one of several runs, by its name
  atoll status https://ours.example.org:9443 --run runs/here
  atoll status https://ours.example.org:9443 --token @token.txt --authority authority.pem)";

struct StatusArguments {
  std::string place;  // A folder or an address.
  ReaderOptions reader;
  bool json = false;
  bool events = false;
  double watch = 0;  // Seconds; 0: once.
};

/// Whom to ask.
struct Target {
  std::string address;
  std::string name;  // Of one of its runs; empty: all of them.
  // Known for a folder's coordinator.
  fs::path folder;
  std::string run;
  /// Of an https:// address: who asks, and whom. Null: in the clear, on this machine.
  std::shared_ptr<const net::HttpsIdentity> https;
};

using Runs = std::vector<swarm::RunStatus>;

struct Answer {
  std::string text;
  Runs runs;
};

Target target_in(const fs::path& folder) {
  const run::RunningCoordinator place = run::running_coordinator(folder);
  return {.address = place.status, .name = place.name, .folder = folder, .run = place.run};
}

Target only_running() {
  const std::vector<fs::path> folders = run::running_in("runs");
  if (folders.size() == 1) return target_in(folders[0]);
  if (folders.empty()) {
    throw UsageError(
        "no coordinator runs in a folder below 'runs'; name a run's folder or the "
        "coordinator's status address");
  }
  std::string list;
  for (const fs::path& folder : folders) list += "\n  atoll status " + folder.string();
  throw UsageError("several runs have a coordinator here; name one:" + list);
}

/// HOST:PORT, or HOST:PORT/NAME. People paste what the coordinator's log shows, too:
/// http://127.0.0.1:1234/status, perhaps with /NAME.
Target target_at(std::string text) {
  if (text.starts_with(kHttps)) text.erase(0, kHttps.size());
  if (text.starts_with("http://")) text.erase(0, 7);
  const size_t slash = text.find('/');
  Target target{.address = text.substr(0, slash)};
  if (slash != std::string::npos) target.name = text.substr(slash + 1);
  if (target.name == "status" || target.name == "metrics") target.name.clear();
  if (target.name.starts_with("status/")) target.name.erase(0, std::string("status/").size());
  return target;
}

Target find_target(const StatusArguments& arguments) {
  const std::string& place = arguments.place;
  const bool is_https = place.starts_with(kHttps);
  if (!is_https && arguments.reader.any()) {
    throw UsageError(
        "--token, --run, --authority and --fingerprint are for https://HOST:PORT; on this machine "
        "name the run's folder alone");
  }
  if (place.empty()) return only_running();
  if (fs::is_directory(place)) return target_in(place);
  Target target = target_at(place);
  const auto address = net::parse_address(target.address);
  const bool is_name = target.name.empty() || swarm::is_valid_name(target.name);
  if (!address || !is_name || fs::exists(place)) {
    throw UsageError(fmt::format("'{}' is {}, and no address (HOST:PORT, HOST:PORT/NAME)", place,
                                 fs::exists(place) ? "no folder" : "no folder that exists"));
  }
  target.address = address->text();
  if (is_https) target.https = https_identity(arguments.reader);
  return target;
}

Result<Answer> ask(const Target& target) {
  const std::string path = target.name.empty() ? "/status" : "/status/" + target.name;
  const auto reply = target.https
                         ? net::https_get(target.address, path, *target.https, kPatience, kMaxBytes)
                         : net::http_get(target.address, path, kPatience, kMaxBytes);
  if (!reply) return failure(reply.error().message);
  if (reply->status == 401 || reply->status == 429) {
    return failure(fmt::format("{} does not let this reader read: {}", target.address,
                               reply->status == 429      ? "too many attempts, wait a minute"
                               : target.https == nullptr ? "it asks for a token"
                               : target.https->token.empty()
                                   ? "it knows no such member; use --token"
                                   : "it knows no such token (any more)"));
  }
  if (reply->status == 404 && reply->body.starts_with("an Atoll coordinator")) {
    return failure(fmt::format("the coordinator at {} has no run that is called '{}'",
                               target.address, target.name));
  }
  Answer answer{.text = reply->body, .runs = {}};
  try {
    answer.runs = swarm::runs_from_json(reply->body);
  } catch (const InputError&) {
    return failure(fmt::format("{} answers, but it is no Atoll coordinator", target.address));
  }
  if (!target.run.empty() && answer.runs[0].run != target.run) {
    return failure(fmt::format("{} answers for another run ('{}' instead of '{}')", target.address,
                               answer.runs[0].run.substr(0, 100), target.run));
  }
  return answer;
}

/// Somebody whose address was given may be another than the user believes.
[[noreturn]] void fail(const Target& target, const std::string& why) {
  throw InputError(
      why + (target.folder.empty()
                 ? "; is the coordinator running, and is this its status address (its log has "
                   "\"status at\"), not the one that islands join?"
                 : fmt::format(", where {} says that the coordinator is",
                               (target.folder / "coordinator.json").string())));
}

std::string to_text(const Runs& runs) {
  std::string text;
  for (const auto& run : runs) text += (text.empty() ? "" : "\n\n") + swarm::to_text(run);
  return text;
}

void show(const Runs& runs, bool redraw) {
  if (redraw) {
    fmt::print("\x1b[H\x1b[J{}", to_text(runs));
  } else {
    for (const auto& run : runs) {
      fmt::print("{:%H:%M:%S}  {}\n", fmt::localtime(static_cast<std::time_t>(wall_time())),
                 swarm::to_line(run));
    }
  }
  std::fflush(stdout);
}

bool are_over(const Runs& runs) {
  return std::ranges::all_of(runs,
                             [](const auto& run) { return run.state == swarm::RunState::kOver; });
}

/// A coordinator ends with its run, mostly between two questions.
void explain_end(const Target& target, const std::string& why) {
  if (target.folder.empty()) {
    fmt::print("{}: the run is over, or its coordinator was lost\n", why);
    return;
  }
  try {
    run::running_coordinator(target.folder);
  } catch (const InputError&) {
    fmt::print("the coordinator has ended\n");
    return;
  }
  fail(target, why);
}

void watch(const Target& target, Runs runs, double interval) {
  watch_interrupts();
  const SystemClock clock;
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  show(runs, terminal);
  while (!are_over(runs) && sleep_for(interval, clock)) {
    const auto answer = ask(target);
    if (!answer) return explain_end(target, answer.error().message);
    runs = answer->runs;
    show(runs, terminal);
  }
}

void print_events_of(const StatusArguments& arguments) {
  const fs::path folder =
      arguments.place.empty() ? only_running().folder : fs::path(arguments.place);
  if (!fs::is_directory(folder)) {
    throw UsageError(fmt::format("'{}' is no folder: --events reads a run's", folder.string()));
  }
  print_events(folder, arguments.json, arguments.watch);
}

void print_status(const StatusArguments& arguments) {
  if (arguments.events) return print_events_of(arguments);
  if (arguments.json && arguments.watch > 0) {
    throw UsageError("--json with --watch is for --events");
  }
  std::signal(SIGPIPE, SIG_IGN);  // A coordinator may hang up while it is asked.
  const Target target = find_target(arguments);
  const auto answer = ask(target);
  if (!answer) fail(target, answer.error().message);
  if (arguments.json) {
    fmt::print("{}\n", nlohmann::ordered_json::parse(answer->text).dump());
  } else if (arguments.watch > 0) {
    watch(target, answer->runs, arguments.watch);
  } else {
    fmt::print("{}", to_text(answer->runs));
  }
}

}  // namespace

void add_status_command(CLI::App& app) {
  auto* command = app.add_subcommand("status", "Show how a run goes: islands, rounds, alarms");
  auto arguments = std::make_shared<StatusArguments>();
  command->add_option("place", arguments->place,
                      "a run's folder, or the HOST:PORT[/NAME] where its coordinator tells its "
                      "status (https://... for readers "
                      "elsewhere)");
  add_reader_options(*command, arguments->reader);
  command->add_flag("--events", arguments->events,
                    "what happened: the events that are kept in a run's folder");
  command->add_flag("--json", arguments->json, "print one JSON object; of events one on each line");
  command
      ->add_option("--watch", arguments->watch,
                   "again every so many seconds; of events those that came")
      ->check(CLI::Range(0.1, 86400.0));
  command->footer(kFooter);
  command->callback([arguments] { print_status(*arguments); });
}

}  // namespace atl::cli
