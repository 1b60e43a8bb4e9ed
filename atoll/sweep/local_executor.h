#pragma once
// Points on this machine: as many at once as cores and memory allow. They die with this process.
// LibTorch-free.
#include <map>
#include <memory>
#include <optional>

#include "atoll/run/child_process.h"
#include "atoll/sweep/point_executor.h"

namespace atl::sweep {

struct LocalBudget {
  int64_t cores = 1;
  double memory_bytes = 0;
};

class LocalExecutor final : public PointExecutor {
 public:
  /// `program` is the `atoll` command.
  LocalExecutor(std::filesystem::path program, LocalBudget budget)
      : program_(std::move(program)), budget_(budget) {}

  /// A point that asks for more than the budget runs alone; whether there is memory for it is the
  /// driver's to say. One with more threads than cores is held to so many of the machine's.
  size_t start(std::span<const PointTask> tasks) override;
  /// None: points ended with their driver.
  bool adopt(const PointTask& task) override;
  std::vector<PointEnd> poll() override;
  void stop() override;
  size_t num_running() const override { return running_.size(); }
  int64_t num_cores() const override { return budget_.cores; }

 private:
  struct Running {
    std::unique_ptr<run::ChildProcess> process;
    int64_t cores = 0;
    double memory_bytes = 0;
  };
  bool has_room(const PointTask& task) const;

  const std::filesystem::path program_;
  const LocalBudget budget_;
  std::map<std::string, Running> running_;  // By id.
};

/// Of this machine, as far as this process may use it: all its cores; nine tenths of its memory.
LocalBudget whole_machine();

}  // namespace atl::sweep
