#include "atoll/sweep/local_executor.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <thread>

#include "atoll/base/check.h"

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
        point_command(program_, task.folder), point_log(task.folder),
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
  const double physical =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::ifstream in("/proc/self/cgroup");
  const std::string memberships(std::istreambuf_iterator<char>(in), {});
  const double allowed = group_memory_bytes(memberships, "/sys/fs/cgroup");
  return {.cores = std::max<int64_t>(1, std::thread::hardware_concurrency()),
          .memory_bytes = kShare * std::min(physical, allowed)};
}

double group_memory_bytes(const std::string& memberships, const std::filesystem::path& root) {
  double least = std::numeric_limits<double>::infinity();
  // "0::/a/b": of version 2. "5:memory:/a/b": of version 1, which has a tree for each resource. In
  // a container the path may be the host's; its own group is then what lies at the root.
  std::istringstream lines(memberships);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string resources = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_second = resources == ",,";
    if (!is_second && resources.find(",memory,") == std::string::npos) continue;
    const std::filesystem::path tree = is_second ? root : root / "memory";
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    while (true) {
      std::ifstream file(tree / group / (is_second ? "memory.max" : "memory.limit_in_bytes"));
      double bytes = 0;
      if (file >> bytes && bytes > 0) least = std::min(least, bytes);  // "max" is no number.
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return least;
}

}  // namespace atl::sweep
