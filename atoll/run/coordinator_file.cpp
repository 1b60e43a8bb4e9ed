#include "atoll/run/coordinator_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"
#include "atoll/base/process.h"

namespace atl::run {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFileName = "coordinator.json";

RunningCoordinator read_running(const fs::path& path) {
  return struct_in<RunningCoordinator>(
      read_file(path), fmt::format("'{}' is damaged, or from another version", path.string()));
}

bool runs(int64_t pid) { return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH; }

}  // namespace

RunningCoordinator this_coordinator(std::string run, std::string name, std::string control,
                                    std::string status) {
  return {.pid = ::getpid(),
          .machine = machine_name(),
          .run = std::move(run),
          .name = std::move(name),
          .control = std::move(control),
          .status = std::move(status)};
}

CoordinatorFile::CoordinatorFile(const fs::path& folder, const RunningCoordinator& coordinator)
    : path_(folder / kFileName), pid_(coordinator.pid) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw InputError(
        fmt::format("cannot create the folder '{}': {}", folder.string(), error.message()));
  }
  write_file_atomically(path_, json_of(coordinator).dump(2) + "\n");
}

CoordinatorFile::~CoordinatorFile() {
  try {
    if (read_running(path_).pid == pid_) fs::remove(path_);
  } catch (const std::exception&) {  // Gone already, or no longer ours.
    return;
  }
}

RunningCoordinator running_coordinator(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw InputError(fmt::format("there is no folder '{}'", folder.string()));
  }
  if (!fs::exists(folder / kFileName)) {
    throw InputError(
        fmt::format("no coordinator runs in '{}': it would have a {} there (runs of one island "
                    "have no coordinator; one started by hand needs --run {})",
                    folder.string(), kFileName, folder.string()));
  }
  const RunningCoordinator coordinator = read_running(folder / kFileName);
  if (coordinator.machine != machine_name()) {
    throw InputError(fmt::format("the coordinator of '{}' runs on the machine '{}': ask there",
                                 folder.string(), coordinator.machine));
  }
  if (!runs(coordinator.pid)) {
    throw InputError(
        fmt::format("no coordinator runs in '{}' any more: its process {} has ended and left {}",
                    folder.string(), coordinator.pid, kFileName));
  }
  if (coordinator.status.empty()) {
    throw InputError(
        fmt::format("the coordinator of '{}' was started with --http off", folder.string()));
  }
  return coordinator;
}

std::vector<fs::path> running_in(const fs::path& parent) {
  std::vector<fs::path> folders;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(parent, missing)) {
    try {
      running_coordinator(entry.path());
      folders.push_back(entry.path());
    } catch (const InputError&) {  // None there.
      continue;
    }
  }
  std::ranges::sort(folders);
  return folders;
}

}  // namespace atl::run
