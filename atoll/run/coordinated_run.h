#pragma once
// One of the runs of `atoll coordinate`: its settings, its folder with the journal, what it says.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event_log.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/coordinator/journal.h"
#include "atoll/run/config.h"
#include "atoll/run/coordinator_file.h"

namespace atl::run {

/// With the time of day, in ms, to stderr: what happened is told apart from what the islands' logs
/// say.
void print_log(const std::string& line);

/// Shows the islands' progress now and then, when there is any.
class ProgressLog {
 public:
  explicit ProgressLog(const Clock& clock) : clock_(clock) {}

  /// What there is to say; empty where there is nothing new, or not yet.
  std::string next(const std::vector<swarm::IslandStatus>& islands);

 private:
  const Clock& clock_;
  std::string last_;
  Time printed_{};
};

class CoordinatedRun {
 public:
  struct Request {
    std::string name;              // That islands may ask for; empty: none.
    std::filesystem::path config;  // Empty: the defaults.
    std::filesystem::path folder;  // Empty: no journal.
    bool is_only = true;           // Of this coordinator: then nothing need be told apart.
    bool ends_together = false;    // In lockstep no round is without any of the islands.
  };

  /// Opens the journal. Throws UsageError when the settings cannot be used, or are not the
  /// journal's; InputError when another process has the folder.
  CoordinatedRun(Request request, const std::vector<std::string>& overrides, const Clock& clock);
  CoordinatedRun(const CoordinatedRun&) = delete;
  CoordinatedRun& operator=(const CoordinatedRun&) = delete;

  swarm::RunStatus first_status() const;
  /// For the server, whose callbacks use this object. `publish` gets the newest status.
  swarm::ServedRun served(std::function<void(swarm::RunStatus)> publish);
  /// coordinator.json, for programs. `status` is empty where none is served.
  void leave_file(const std::string& control, const std::string& status);
  /// Something of this run that happened outside of its coordinator.
  void note(const Event& event) {
    if (events_) events_->add(event);
  }
  /// For people.
  void announce(const std::string& control);

 private:
  /// The name, where it has to be told from others.
  std::string shown_name() const { return request_.is_only ? "" : request_.name; }
  /// A sentence of this run, on stderr.
  void tell(const std::string& sentence) const;

  Request request_;
  ProgressLog progress_;
  std::optional<swarm::Journal> journal_;
  std::optional<EventLog> events_;  // While the folder is this run's.
  swarm::Book book_;                // As the journal has it, until the server does.
  std::optional<run::CoordinatorFile> file_;
  swarm::CoordinatorOptions options_;
  std::optional<int64_t> came_back_at_;  // The step of a journal's run.
  double started_at_ = wall_time();
};

}  // namespace atl::run
