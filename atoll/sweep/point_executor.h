#pragma once
// Who runs the points of a sweep: this machine (local_executor.h), or a cluster. A point is a
// folder with settings; `atoll scaling point FOLDER` trains it and leaves FOLDER/result.json, under
// its name only when complete (point_files.h). So an executor knows nothing of results: it starts
// that command, says when it is over, and ends it. The sweep's driver alone reads results and
// writes the database; one that was killed finds what ended without it. LibTorch-free. One owner
// thread.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace atl::sweep {

/// One point to train.
struct PointTask {
  std::string id;                // Of letters and digits; the name of its folder.
  std::filesystem::path folder;  // Absolute; holds the point's settings.
  int64_t cores = 1;             // That it may keep busy: at most the budget.
  int64_t threads = 1;           // That compute: islands times threads of each.
  double memory_bytes = 0;       // Expected peak of all its processes.
  double seconds = 0;            // Expected; 0: nothing to go by.
};

/// A point that is over, with or without a result.
struct PointEnd {
  std::string id;
  std::string reason;        // How its process ended; what is said when it has left no result.
  bool was_stopped = false;  // It was asked to end: without a result it is to go on, not failed.
};

/// With which a point ends that was asked to: its state is kept.
constexpr int kStoppedStatus = 130;

class PointExecutor {
 public:
  virtual ~PointExecutor() = default;

  /// Starts the tasks, none of which it has already, from the first on, as many as there is room
  /// for now; returns how many. A task that would never fit counts as one that has room when
  /// nothing else runs. Throws InputError when nothing can be started at all.
  virtual size_t start(std::span<const PointTask> tasks) = 0;

  /// Whether this task, started by a driver that is gone, is still on its way; it is then reported
  /// by poll() like one of this driver's. Asked before anything is started.
  virtual bool adopt(const PointTask& task) = 0;

  /// What ended since the last call, each once. Does not wait.
  virtual std::vector<PointEnd> poll() = 0;

  /// Asks all that run to end soon and keep their state (they resume when started again); poll()
  /// still reports them. Called once.
  virtual void stop() = 0;

  virtual size_t num_running() const = 0;

  /// Cores that points keep busy together, as far as is known now; at least 1.
  virtual int64_t num_cores() const = 0;
};

/// What trains the point in `folder`, wherever it runs; `program` is the `atoll` command.
inline std::vector<std::string> point_command(const std::filesystem::path& program,
                                              const std::filesystem::path& folder) {
  return {program.string(), "scaling", "point", folder.string()};
}

/// Where what that command prints goes.
inline std::filesystem::path point_log(const std::filesystem::path& folder) {
  return folder / "point.log";
}

}  // namespace atl::sweep
