#pragma once
// An array of points as a folder (slurm_text.h has its files): all that a sweep that was killed
// needs to find its jobs again. LibTorch-free. One owner thread.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/sweep/slurm_text.h"

namespace atl::sweep {

class SlurmArray {
 public:
  struct Task {
    std::string point;
    std::filesystem::path log{};  // What the point prints; known while it is awaited.
    int64_t cores = 0;            // That it keeps busy; likewise.
    TaskEvidence evidence{};
    std::optional<Time> seems_over_since{};
    bool is_over = false;     // Reported, or nobody asks.
    bool is_awaited = false;  // By this sweep's driver.
  };

  /// Writes a new array into `parent`, under a name that no other has. `commands` are those of
  /// `tasks`. Throws InputError when it cannot be written.
  static SlurmArray create(const std::filesystem::path& parent, std::vector<Task> tasks,
                           std::span<const TaskCommand> commands);
  /// Reads one back. Throws InputError when its files cannot be read.
  static SlurmArray load(const std::filesystem::path& folder);
  /// The folders of arrays in `parent`.
  static std::vector<std::filesystem::path> find(const std::filesystem::path& parent);

  /// The name of its folder, and of its job.
  std::string name() const { return folder_.filename().string(); }
  std::filesystem::path script() const { return folder_ / "script"; }
  const std::filesystem::path& folder() const { return folder_; }

  /// From sbatch, or found in a task's own file or in Slurm's queue.
  std::optional<int64_t> job() const { return job_; }
  void set_job(int64_t job);

  std::vector<Task>& tasks() { return tasks_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  int64_t num_unfinished() const;

  /// Takes up the exit codes that tasks have left; whether there are new ones.
  bool read_exit_codes();
  void mark_over(size_t index);
  /// Whether its tasks were asked to end, by this sweep or one before it: what then ends without a
  /// result has not failed.
  bool is_stopped() const { return is_stopped_; }
  void mark_stopped();
  /// Deletes its files. A task of it that starts later finds nothing to do.
  void remove() const;

 private:
  explicit SlurmArray(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;
  std::optional<int64_t> job_;
  bool is_stopped_ = false;
  std::vector<Task> tasks_;
};

}  // namespace atl::sweep
