#include "atoll/run/launcher.h"

#include <fmt/format.h>
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
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/run/child_process.h"
#include "atoll/run/events.h"
#include "atoll/run/live_view.h"
#include "atoll/run/run_folder.h"

namespace atl::run {
namespace {

using nlohmann::json;
constexpr std::chrono::seconds kCoordinatorStart{30};
constexpr std::chrono::seconds kOthersEnd{20};  // After one process failed.

struct Island {
  std::string name;
  std::unique_ptr<ChildProcess> process;
  std::optional<Summary> summary;
  bool is_lost = false;
};

class Launch {
 public:
  Launch(const LaunchOptions& options, const Clock& clock)
      : options_(options), clock_(clock), events_(options.folder), view_(island_names(), clock) {}

  std::vector<Summary> run() {
    start_coordinator();
    start_islands();
    while (!all_ended()) {
      wait_for_output();
      forward_interrupts();
      for (size_t i = 0; i < islands_.size(); ++i) {
        read_island(i);
        if (!islands_[i].summary && !islands_[i].is_lost) view_.remind(i);
      }
      look_for_failures();
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

  void start_coordinator() {
    std::vector<std::string> command = {options_.program.string(),
                                        "coordinate",
                                        "--config",
                                        (options_.folder / "config.toml").string(),
                                        "--listen",
                                        address_.empty() ? "127.0.0.1:0" : address_,
                                        "--run",
                                        options_.folder.string()};
    if (options_.together) command.emplace_back("--together");
    coordinator_ = std::make_unique<ChildProcess>(command, options_.folder / "coordinator.log");
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
      const auto folder = options_.folder / name;
      std::filesystem::create_directories(folder);
      std::vector<std::string> command = {
          options_.program.string(), "join",   address_, "--run",
          folder.string(),           "--name", name,     "--messages"};
      if (options_.together) command.emplace_back("--together");
      for (const std::string& word : own_settings()) command.push_back(word);
      if (!options_.link_rate.empty()) {
        command.insert(command.end(), {"--link-rate", options_.link_rate});
      }
      const InitialModel& init = options_.init;
      if (init.given()) command.insert(command.end(), {"--init", init.path.string()});
      if (init.is_strict) command.emplace_back("--strict");
      islands_.push_back({name, std::make_unique<ChildProcess>(command, folder / "log.txt"), {}});
      view_.update(islands_.size() - 1, "starting");
    }
  }

  /// What this machine's islands are told beside the run's settings.
  std::vector<std::string> own_settings() const {
    RunConfig config = options_.config;
    RunConfig defaults;
    const SettingList given = config.settings();
    const SettingList usual = defaults.settings();
    std::vector<std::string> words;
    for (size_t i = 0; i < given.settings().size(); ++i) {
      const Setting& setting = given.settings()[i];
      if (!setting.local || setting.text() == usual.settings()[i].text()) continue;
      words.push_back("--" + setting.assignment());
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
        view_.update(i, progress_line(progress_from_json(message["progress"].dump())));
      } else if (message.contains("summary")) {
        island.summary = summary_from_json(message["summary"].dump());
      }
    }
  }

  bool all_ended() const {
    return std::ranges::all_of(islands_, [](const Island& island) {
      return island.process->poll_exit() && island.process->output() < 0;
    });
  }

  static bool failed(ChildProcess& process) {
    const auto status = process.poll_exit();
    return status && *status != 0;
  }

  /// An island that ends badly is left behind by the others, unless all are to end together.
  /// Without the coordinator, or without any island that trains, the matter is settled; the others
  /// get some time to say so too.
  void look_for_failures() {
    for (Island& island : islands_) {
      if (island.is_lost || !failed(*island.process)) continue;
      island.is_lost = true;
      if (options_.together) report_failure();
      if (num_training() == 0) continue;
      view_.update(static_cast<size_t>(&island - islands_.data()), "lost");
      events_.add(IslandProcessLost{.island = island.name,
                                    .cause = cause_of(island.name, *island.process),
                                    .command = rejoin_command(island)});
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

  /// One that was killed goes on from its journal, at the same address, where the islands look for
  /// it. One that ended by itself has said why.
  void restart_coordinator() {
    const auto status = coordinator_->poll_exit();
    if (!status || *status <= 128 || num_training() == 0 || failed_at_ || forwarded_) return;
    events_.add(CoordinatorRestarted{cause_of("coordinator", *coordinator_)});
    start_coordinator();
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
    return status > 128 ? fmt::format("{}: killed by signal {}", name, status - 128)
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
  EventLog events_;
  LiveView view_;
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

Summary combine(const std::vector<Summary>& islands, const std::filesystem::path& folder) {
  Summary out = islands.front();
  out.run = folder.string();
  for (size_t i = 1; i < islands.size(); ++i) {
    out.train_loss += islands[i].train_loss;
    out.val_loss_island += islands[i].val_loss_island;
    out.tokens_per_s += islands[i].tokens_per_s;
    out.bytes_sent += islands[i].bytes_sent;
    out.bytes_received += islands[i].bytes_received;
    out.abstained_rounds += islands[i].abstained_rounds;
    out.stall_share += islands[i].stall_share;
    out.blocked_share += islands[i].blocked_share;
    out.checkpoint_stall_ms = std::max(out.checkpoint_stall_ms, islands[i].checkpoint_stall_ms);
  }
  const auto count = static_cast<double>(islands.size());
  out.train_loss /= count;
  out.val_loss_island /= count;
  out.stall_share /= count;
  out.blocked_share /= count;
  return out;
}

namespace {

/// Its folder is called so.
std::string name_of(const Summary& island) {
  return std::filesystem::path(island.run).filename().string();
}

}  // namespace

std::string result_table(const RunConfig& config, const std::vector<Summary>& islands) {
  std::string out = fmt::format("{:<12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}\n", "",
                                "val start", "val end", "tokens/s", "sent", "received", "waiting");
  const auto add_row = [&](const std::string& name, const Summary& s, std::optional<double> val) {
    // A run that was stopped has no loss of its islands' own before the last sync.
    out += fmt::format("{:<12} {:>10.3f} {:>10} {:>10.0f} {:>10} {:>10} {:>7.1f}%\n", name,
                       s.val_loss_start, val ? fmt::format("{:.3f}", *val) : "-", s.tokens_per_s,
                       format_bytes(static_cast<double>(s.bytes_sent)),
                       format_bytes(static_cast<double>(s.bytes_received)), 100 * s.stall_share);
  };
  for (size_t i = 0; i < islands.size(); ++i) {
    add_row(name_of(islands[i]), islands[i],
            islands[i].stopped ? std::nullopt : std::optional(islands[i].val_loss_island));
  }
  const Summary all = combine(islands, islands.front().run);
  add_row("global", all, all.val_loss);
  if (all.steps_now == 0) {
    return out + fmt::format(
                     "\nThe run was complete already, {} steps. All islands hold the same "
                     "global model: {}\n",
                     all.steps, all.digest);
  }
  const auto count = static_cast<double>(islands.size());
  out += fmt::format("\nMethod: {}, codec {}{}{}.\n", all.method, all.codec,
                     all.fragment_sync_delay > 0
                         ? fmt::format(", fragment_sync_delay {}", all.fragment_sync_delay)
                         : "",
                     config.sync.codec == "auto" ? " (sync.codec = auto chose)" : "");
  for (size_t i = 0; i < islands.size(); ++i) {
    if (islands[i].abstained_rounds == 0) continue;
    out += fmt::format("{} abstained from {} rounds, with weight 0; why is in {}\n",
                       name_of(islands[i]), islands[i].abstained_rounds,
                       (std::filesystem::path(islands[i].run) / "log.txt").string());
  }
  const bool exact = all.codec == "fp32";
  const double value_bytes = exact ? 4 : 2;
  // Reduce-scatter and all-gather: each island sends 2 (M-1)/M of the values at every step.
  const double data_parallel = 2 * (count - 1) * value_bytes *
                               static_cast<double>(all.num_parameters) *
                               static_cast<double>(all.steps_now);
  out += fmt::format(
      "On the wire: {} sent in all; data-parallel in {} would have needed {} "
      "({:.1f} times as much).\n",
      format_bytes(static_cast<double>(all.bytes_sent)), exact ? "fp32" : "bf16",
      format_bytes(data_parallel),
      data_parallel / std::max(1.0, static_cast<double>(all.bytes_sent)));
  out += fmt::format("All islands hold the same global model: {}\n", all.digest);
  return out;
}

std::string progress_message(const Progress& progress) {
  return json{{"progress", json::parse(to_json(progress))}}.dump();
}

std::string summary_message(const Summary& summary) {
  return json{{"summary", json::parse(to_json(summary))}}.dump();
}

}  // namespace atl::run
