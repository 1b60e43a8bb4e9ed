#pragma once
// How much memory this process may use, and has used.
#include <filesystem>
#include <string>

namespace atl {

/// The machine's, or what its control groups leave it; bytes.
double usable_memory_bytes();

/// The most memory that this process has held at once, in bytes; 0 where the system does not say.
double peak_memory_bytes();
/// What it holds now, likewise.
double resident_memory_bytes();

/// The smallest bound that control groups set for the memory of a process, in bytes; infinity:
/// none. `memberships` is its /proc/PID/cgroup, `root` where the groups lie: /sys/fs/cgroup.
double group_memory_bytes(const std::string& memberships, const std::filesystem::path& root);

}  // namespace atl
