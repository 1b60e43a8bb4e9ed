#include "atoll/base/machine_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>

namespace atl {
namespace {

/// What the system says of this process under that word.
double status_bytes(std::string_view wanted) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    double kib = 0;
    if (word == wanted && in >> kib) return 1024 * kib;
  }
  return 0;
}

}  // namespace

double usable_memory_bytes() {
  const double physical =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::ifstream in("/proc/self/cgroup");
  const std::string memberships(std::istreambuf_iterator<char>(in), {});
  return std::min(physical, group_memory_bytes(memberships, "/sys/fs/cgroup"));
}

// getrusage() would tell the most of this process and of the one that it was before execv().
double peak_memory_bytes() { return status_bytes("VmHWM:"); }

double resident_memory_bytes() { return status_bytes("VmRSS:"); }

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

}  // namespace atl
