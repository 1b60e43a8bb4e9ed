#include "atoll/run/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/event_log.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/process_lost.h"
#include "atoll/run/child_process.h"
#include "atoll/run/events.h"
#include "atoll/run/island_history.h"
#include "atoll/run/live_view.h"
#include "atoll/run/run_authority.h"
#include "atoll/run/run_folder.h"

namespace atl::run {
namespace {

using nlohmann::json;
constexpr std::chrono::seconds kCoordinatorStart{30};
constexpr std::chrono::seconds kOthersEnd{20};  // After one process failed.
constexpr std::chrono::seconds kPause{2};  // Before an island that was killed is started again.

struct Island {
  std::string name;
  std::unique_ptr<ChildProcess> process;
  std::optional<Summary> summary;
  IslandHistory history;
  std::optional<Time> starts_again;  // Killed, and to be started then.
  bool is_lost = false;              // For good, as far as this launcher goes.
};

class Launch {
 public:
  Launch(const LaunchOptions& options, const Clock& clock)
      : options_(options),
        clock_(clock),
        view_(island_names(), clock),
        events_(options.folder,
                [this](const std::string& sentence) { view_.say("atoll: " + sentence + "\n"); }) {}

  std::vector<Summary> run() {
    make_authority();
    start_coordinator(Log::kBegins);
    start_islands();
    while (!all_ended()) {
      wait_for_output();
      forward_interrupts();
      for (size_t i = 0; i < islands_.size(); ++i) {
        read_island(i);
        const Island& island = islands_[i];
        const bool is_there = !island.summary && !island.is_lost && !island.starts_again;
        if (is_there) view_.remind(i);
      }
      look_for_failures();
      start_again();
    }
    return summaries();
  }

 private:
  std::vector<std::string> island_names() const {
    std::vector<std::string> names;
    for (int64_t i = 0; i < options_.config.swarm.num_replicas(); ++i) {
      names.push_back(fmt::format("island-{}", i));
    }
    return names;
  }

  /// All that the run's processes say to each other is encrypted, and only they take part.
  void make_authority() {
    if (!has_authority(options_.folder)) create_authority(options_.folder, "local");
    for (const std::string& name : island_names()) {
      std::filesystem::create_directories(options_.folder / name);
      enrol(options_.folder, options_.folder / name, name);
    }
  }

  void start_coordinator(Log log) {
    std::vector<std::string> command = {options_.program.string(),
                                        "coordinate",
                                        "--config",
                                        (options_.folder / "config.toml").string(),
                                        "--listen",
                                        address_.empty() ? "127.0.0.1:0" : address_,
                                        "--run",
                                        options_.folder.string()};
    if (options_.together) command.emplace_back("--together");
    coordinator_ =
        std::make_unique<ChildProcess>(command, options_.folder / "coordinator.log", log);
    const Time begin = clock_.now();
    for (bool is_there = false; !is_there;) {
      for (const std::string& line : coordinator_->read_lines()) {
        if (!std::exchange(is_there, true)) address_ = line;
      }
      if (coordinator_->poll_exit() || clock_.now() - begin > kCoordinatorStart) {
        fail("the coordinator did not start", *coordinator_);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  void start_islands() {
    for (const std::string& name : island_names()) {
      std::filesystem::create_directories(options_.folder / name);
      islands_.push_back({.name = name});
      start(islands_.back(), Log::kBegins);
      view_.update(islands_.size() - 1, "starting");
    }
  }

  void start(Island& island, Log log) const {
    const auto folder = options_.folder / island.name;
    std::vector<std::string> command = {
        options_.program.string(), "join",   address_,    "--run",
        folder.string(),           "--name", island.name, "--messages"};
    for (std::string& word : processes_option()) command.push_back(std::move(word));
    if (options_.together) command.emplace_back("--together");
    for (const std::string& word : own_settings()) command.push_back(word);
    if (!options_.link_rate.empty()) {
      command.insert(command.end(), {"--link-rate", options_.link_rate});
    }
    const InitialModel& init = options_.init;
    // An island that comes back may have begun with it already.
    if (init.given() && (log == Log::kBegins || !was_started(folder))) {
      command.insert(command.end(), {"--init", init.path.string()});
      if (init.is_strict) command.emplace_back("--strict");
    }
    island.process = std::make_unique<ChildProcess>(command, folder / "log.txt", log);
  }

  /// Said of one process too: what is in the environment is about this launcher.
  std::vector<std::string> processes_option() const {
    return {"--processes-per-island", fmt::format("{}", options_.processes)};
  }

  /// What this machine's islands are told beside the run's settings.
  std::vector<std::string> own_settings() const {
    RunConfig config = options_.config;
    std::vector<std::string> words;
    for (const Setting& setting : changed_settings(config)) {
      if (setting.local) words.push_back("--" + setting.assignment());
    }
    return words;
  }

  void wait_for_output() const {
    std::vector<pollfd> outputs;
    for (const Island& island : islands_) {
      if (island.process->output() >= 0) outputs.push_back({island.process->output(), POLLIN, 0});
    }
    ::poll(outputs.data(), outputs.size(), 100);
  }

  void forward_interrupts() {
    if (num_interrupts() == 0 || forwarded_) return;
    forwarded_ = true;
    fmt::print(stderr,
               "\nstopping after the next sync (Ctrl-C again: end now); then resume with\n  {}\n",
               resume_command(options_.folder, std::ssize(islands_), options_.link_rate));
    for (const Island& island : islands_) island.process->signal(SIGINT);
  }

  void read_island(size_t i) {
    Island& island = islands_[i];
    for (const std::string& line : island.process->read_lines()) {
      const json message = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (message.is_discarded()) continue;
      if (message.contains("progress")) {
        const auto progress = struct_of<Progress>(message["progress"], island.name);
        if (const auto away = island.history.heard(progress, clock_.now())) {
          events_.add(IslandProcessBack{.island = island.name, .away_s = seconds(*away)});
        }
        view_.update(i, progress_line(progress));
      } else if (message.contains("summary")) {
        island.summary = island.history.whole(struct_of<Summary>(message["summary"], island.name));
      }
    }
  }

  bool all_ended() const {
    return std::ranges::all_of(islands_, [](const Island& island) {
      return !island.starts_again && island.process->poll_exit() && island.process->output() < 0;
    });
  }

  /// Nothing is wrong with the island itself.
  static bool was_killed(ChildProcess& process) {
    return process.was_killed() || process.poll_exit() == kProcessLostStatus;
  }

  static bool failed(ChildProcess& process) {
    const auto status = process.poll_exit();
    return status && *status != 0;
  }

  /// An island that ends badly is left behind by the others, unless all are to end together; one
  /// that was killed is started again. Without the coordinator, or without any island that trains,
  /// the matter is settled; the others get some time to say so too.
  void look_for_failures() {
    for (Island& island : islands_) {
      if (island.is_lost || island.starts_again || !failed(*island.process)) continue;
      if (options_.together) report_failure();
      read_island(index_of(island));  // Its last words would be taken for the next process's.
      if (was_killed(*island.process)) island.history.lost(clock_.now());
      if (comes_back(island)) {
        let_rest(island);
      } else {
        give_up(island);
      }
    }
    restart_coordinator();
    if (!failed(*coordinator_) && num_training() + num_done() > 0) return;
    if (!failed_at_) {
      failed_at_ = clock_.now();
      if (!all_ended()) {
        events_.add(RunEndsEarly{causes()});
      }
      // One that was stopped (Ctrl-Z, a debugger) wakes up, finds its peers gone, and ends.
      for (const Island& island : islands_) island.process->signal(SIGCONT);
      // A second one would end them in the midst of a checkpoint.
      if (!forwarded_) {
        for (const Island& island : islands_) island.process->signal(SIGINT);
      }
      coordinator_->signal(SIGCONT);
    }
    if (all_ended() || clock_.now() - *failed_at_ > kOthersEnd) report_failure();
  }

  /// Of an island that was lost: whether this launcher starts it again, in a run that goes on. One
  /// that ended by itself has said why; at the end of the run there is nothing to come back to.
  bool comes_back(const Island& island) const {
    const auto is_over = [](const Island& other) {
      return other.summary.has_value() && !other.summary->stopped;
    };
    return was_killed(*island.process) && island.history.may_return() && num_training() > 0 &&
           !failed_at_ && !forwarded_ && std::ranges::none_of(islands_, is_over);
  }

  void let_rest(Island& island) {
    island.starts_again = clock_.now() + kPause;
    const bool others_go_on = num_training() >= options_.config.swarm.min_replicas;
    events_.add(IslandProcessKilled{.island = island.name,
                                    .signal = std::max(0, *island.process->poll_exit() - 128),
                                    .step = island.history.step(),
                                    .others_go_on = others_go_on,
                                    .pause_s = kPause.count()});
    view_.update(index_of(island), "killed");
  }

  void start_again() {
    for (Island& island : islands_) {
      if (!island.starts_again || clock_.now() < *island.starts_again) continue;
      island.starts_again.reset();
      if (!comes_back(island)) {
        give_up(island);
        continue;
      }
      start(island, Log::kGoesOn);
      view_.update(index_of(island), "starting again");
    }
  }

  void give_up(Island& island) {
    island.is_lost = true;
    if (num_training() == 0) return;
    events_.add(IslandProcessLost{.island = island.name,
                                  .cause = cause_of(island.name, *island.process),
                                  .command = rejoin_command(island)});
    view_.update(index_of(island), "lost");
  }

  /// One that was killed goes on from its journal, at the same address, where the islands look for
  /// it. One that ended by itself has said why.
  void restart_coordinator() {
    const auto status = coordinator_->poll_exit();
    if (!status || *status <= 128 || num_training() == 0 || failed_at_ || forwarded_) return;
    events_.add(CoordinatorRestarted{cause_of("coordinator", *coordinator_)});
    start_coordinator(Log::kGoesOn);
  }

  size_t index_of(const Island& island) const {
    return static_cast<size_t>(&island - islands_.data());
  }
  int64_t num_training() const {
    return std::ranges::count_if(
        islands_, [](const Island& island) { return !island.process->poll_exit().has_value(); });
  }
  int64_t num_done() const {
    return std::ranges::count_if(islands_,
                                 [](const Island& island) { return island.summary.has_value(); });
  }

  /// What brings a lost island back into the run while it lasts.
  std::string rejoin_command(const Island& island) const {
    std::string command =
        fmt::format("atoll join {} --run {} --name {}", address_,
                    shell_quoted((options_.folder / island.name).string()), island.name);
    for (const std::string& word : own_settings()) command += " " + shell_quoted(word);
    if (options_.processes > 1) {
      command += fmt::format(" {}", fmt::join(processes_option(), " "));
    }
    if (!options_.link_rate.empty()) command += " --link-rate " + options_.link_rate;
    return command;
  }

  /// Who ended how: a killed process leaves no message of its own, but its peers know of it.
  std::vector<std::string> causes() const {
    std::vector<std::string> causes;
    if (failed(*coordinator_)) causes.push_back(cause_of("coordinator", *coordinator_));
    for (const Island& island : islands_) {
      if (failed(*island.process)) causes.push_back(cause_of(island.name, *island.process));
    }
    return causes;
  }

  /// Of one that has failed.
  static std::string cause_of(const std::string& name, ChildProcess& process) {
    const int status = *process.poll_exit();
    const bool is_killed = status > 128 && status != kInterruptedStatus;  // Who is says why.
    return is_killed ? fmt::format("{}: killed by signal {}", name, status - 128)
                     : fmt::format("{}: {}", name, last_lines(process.log(), 1));
  }

  [[noreturn]] void report_failure() const {
    const std::string message = under(causes());
    std::string advice =
        "nothing was saved yet: after mending the cause, start it again by the same command";
    if (message.find(kKeepsSettings) != std::string::npos) {
      advice = fmt::format("the last checkpoints are in {}/island-0/checkpoints",
                           options_.folder.string());
    } else if (was_started(options_.folder)) {
      advice = "resume it from the last checkpoint that all islands have: " +
               resume_command(options_.folder, std::ssize(islands_), options_.link_rate);
    }
    throw InputError(fmt::format("the run ended early:{}\n{}", message, advice));
  }

  [[noreturn]] static void fail(const std::string& what, const ChildProcess& process) {
    throw InputError(fmt::format("{}; the end of {}:\n{}", what, process.log().string(),
                                 last_lines(process.log(), 5)));
  }

  /// Of the islands that were there to the end.
  std::vector<Summary> summaries() {
    std::vector<Summary> out;
    int64_t newest = 0;
    for (const Island& island : islands_) {
      if (island.summary) newest = std::max(newest, island.summary->steps);
    }
    for (const Island& island : islands_) {
      if (island.is_lost) continue;
      if (!island.summary) fail(island.name + " ended without a result", *island.process);
      if (island.summary->stopped && island.summary->steps < newest) {
        events_.add(IslandEndedBefore{
            .island = island.name, .step = island.summary->steps, .last = newest});
        continue;
      }
      out.push_back(*island.summary);
      if (out.back().digest != out.front().digest) {
        throw InputError(fmt::format("the islands' global models differ: {} and {}",
                                     out.front().digest, out.back().digest));
      }
    }
    if (out.empty()) report_failure();
    return out;
  }

  const LaunchOptions& options_;
  const Clock& clock_;
  LiveView view_;
  EventLog events_;  // Told above the live lines.
  std::unique_ptr<ChildProcess> coordinator_;
  std::string address_;
  std::vector<Island> islands_;
  std::optional<Time> failed_at_;
  bool forwarded_ = false;
};

}  // namespace

std::vector<Summary> launch(const LaunchOptions& options, const Clock& clock) {
  return Launch(options, clock).run();
}

std::string progress_message(const Progress& progress) {
  return json{{"progress", json_of(progress)}}.dump();
}

std::string summary_message(const Summary& summary) {
  return json{{"summary", json_of(summary)}}.dump();
}

}  // namespace atl::run
