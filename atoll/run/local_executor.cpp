#include "atoll/run/local_executor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::run {

bool LocalExecutor::has_room(const PointTask& task) const {
  if (running_.empty()) return true;
  int64_t cores = task.cores;
  double memory = task.memory_bytes;
  for (const auto& [id, one] : running_) {
    cores += one.cores;
    memory += one.memory_bytes;
  }
  return cores <= budget_.cores && memory <= budget_.memory_bytes;
}

size_t LocalExecutor::start(std::span<const PointTask> tasks) {
  size_t started = 0;
  for (const PointTask& task : tasks) {
    if (!has_room(task)) break;
    ATOLL_CHECK(!running_.contains(task.id));
    auto process = std::make_unique<ChildProcess>(point_command(program_, task.folder),
                                                  point_log(task.folder));
    running_[task.id] = {std::move(process), task.cores, task.memory_bytes};
    ++started;
  }
  return started;
}

bool LocalExecutor::adopt(const PointTask& /*task*/) { return false; }

std::vector<PointEnd> LocalExecutor::poll() {
  std::vector<PointEnd> ended;
  for (auto one = running_.begin(); one != running_.end();) {
    ChildProcess& process = *one->second.process;
    process.read_lines();  // It prints nothing; a full pipe would hold it up.
    const auto status = process.poll_exit();
    if (!status) {
      ++one;
      continue;
    }
    ended.push_back({one->first,
                     process.was_killed() ? fmt::format("killed by signal {}", *status - 128)
                                          : last_lines(process.log(), 1),
                     !process.was_killed() && *status == kStoppedStatus});
    one = running_.erase(one);
  }
  return ended;
}

void LocalExecutor::stop() {
  for (const auto& [id, one] : running_) one.process->signal(SIGINT);
}

LocalBudget whole_machine() {
  constexpr double kShare = 0.9;
  return {.cores = std::max<int64_t>(1, std::thread::hardware_concurrency()),
          .memory_bytes = kShare * static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                          static_cast<double>(::sysconf(_SC_PAGESIZE))};
}

}  // namespace atl::run
