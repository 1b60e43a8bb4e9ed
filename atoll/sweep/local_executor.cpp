#include "atoll/sweep/local_executor.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/base/machine_memory.h"

namespace atl::sweep {

namespace {

/// So many of the CPUs that this process may use; none where it may use no more. They begin at
/// another place for each process: sweeps that share a machine are spread over it.
std::vector<int> some_cpus(int64_t count) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return {};
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  if (std::ssize(cpus) <= count) return {};
  std::ranges::rotate(cpus, cpus.begin() + ::getpid() % std::ssize(cpus));
  cpus.resize(static_cast<size_t>(count));
  return cpus;
}

}  // namespace

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
    auto process = std::make_unique<run::ChildProcess>(
        point_command(program_, task.folder), point_log(task.folder), run::Log::kBegins,
        task.threads > task.cores ? some_cpus(task.cores) : std::vector<int>());
    running_[task.id] = {std::move(process), task.cores, task.memory_bytes};
    ++started;
  }
  return started;
}

bool LocalExecutor::adopt(const PointTask& /*task*/) { return false; }

std::vector<PointEnd> LocalExecutor::poll() {
  std::vector<PointEnd> ended;
  for (auto one = running_.begin(); one != running_.end();) {
    run::ChildProcess& process = *one->second.process;
    process.read_lines();  // It prints nothing; a full pipe would hold it up.
    const auto status = process.poll_exit();
    if (!status) {
      ++one;
      continue;
    }
    ended.push_back({one->first,
                     process.was_killed() ? fmt::format("killed by signal {}", *status - 128)
                                          : run::last_lines(process.log(), 1),
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
          .memory_bytes = kShare * usable_memory_bytes()};
}

}  // namespace atl::sweep
