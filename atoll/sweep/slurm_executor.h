#pragma once
// Points of a sweep as tasks of Slurm's job arrays. Arrays are found again by their folders in the
// sweep's own (slurm_array.h): a sweep that was killed leaves its jobs running, and the next one
// takes them over. Ends are learned from files that the tasks leave, and from squeue for tasks that
// could leave none; sacct is asked where squeue has forgotten a task and the cluster keeps
// accounts. The sweep's folder must be the same on all nodes. LibTorch-free. One owner thread.
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/sweep/point_executor.h"
#include "atoll/sweep/slurm_array.h"
#include "atoll/sweep/slurm_commands.h"
#include "atoll/sweep/slurm_options.h"

namespace atl::sweep {

class SlurmExecutor final : public PointExecutor {
 public:
  /// Takes up the arrays in `folder`, which it creates. `program` is the `atoll` command as the
  /// nodes see it. Throws InputError when Slurm is not there or does not answer.
  SlurmExecutor(std::filesystem::path program, std::filesystem::path folder, SlurmOptions options,
                const Clock& clock);

  /// Takes all; poll() sends them, so that points that are started one by one become one array.
  size_t start(std::span<const PointTask> tasks) override;
  bool adopt(const PointTask& task) override;
  /// Throws InputError when Slurm refuses an array for what it is, and nothing else is under way.
  std::vector<PointEnd> poll() override;
  /// Takes back the points that wait, and sends those that run SIGTERM. A sweep that ends without
  /// it leaves its points to Slurm.
  void stop() override;
  /// Points that have not ended, those that wait among them.
  size_t num_running() const override;
  /// Of the points that run, as Slurm last said.
  int64_t num_cores() const override;

 private:
  using Queue = std::map<std::pair<std::string, int64_t>, SlurmTask>;

  void take_up_arrays();
  void send_waiting(Time now);
  size_t num_sendable(int64_t unfinished) const;
  void send(std::span<const PointTask> tasks, int64_t max_running);
  void ask_slurm(Time now);
  /// Adds what squeue has forgotten. Without it the sweep goes on; whether it was there.
  bool ask_accounting(Queue& queue);
  void warn_of_waits();
  void ask_to_stop();
  void raise_limits();
  void report_over(std::vector<PointEnd>& ends, Time now);
  std::vector<SlurmTask> squeue() const;
  std::string names() const;
  int64_t num_unfinished() const;
  void warn(const std::string& what);

  std::filesystem::path program_;
  std::filesystem::path folder_;
  SlurmOptions options_;
  const Clock& clock_;
  SlurmCommands commands_;
  SlurmLimits limits_;
  std::vector<PointTask> waiting_;  // To be sent.
  std::vector<SlurmArray> arrays_;
  std::map<std::string, int64_t> running_limits_;  // By array, as Slurm was last told.
  Time scanned_{};
  Time asked_{};
  Time retry_{};  // No array is sent before.
  bool is_stopping_ = false;
  std::string warning_;          // The last one, so that it is not repeated.
  std::set<std::string> waits_;  // What points wait for that was told of.
};

}  // namespace atl::sweep
