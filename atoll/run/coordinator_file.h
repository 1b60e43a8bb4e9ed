#pragma once
// coordinator.json in a run's folder: where the coordinator that runs there can be reached. It is
// there while the coordinator has that run; a killed one leaves it behind, which its reader
// notices. LibTorch-free.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/fields.h"

namespace atl::run {

struct RunningCoordinator {
  int64_t pid = 0;
  std::string machine;  // Its host name.
  std::string run;      // The id in every message.
  std::string name;     // That islands and the status ask for; empty: it is the only one there.
  std::string control;  // HOST:PORT for islands.
  std::string status;   // HOST:PORT of /status and /metrics; empty: off.

  void visit(auto&& field) {
    field("pid", pid), field("machine", machine), field("run", run);
    field("name", name, NullWhenEmpty{}), field("control", control);
    field("status", status, NullWhenEmpty{});
  }
};

/// Of this process on this machine.
RunningCoordinator this_coordinator(std::string run, std::string name, std::string control,
                                    std::string status);

class CoordinatorFile {
 public:
  /// Creates the folder if need be. Throws InputError when it cannot be written.
  CoordinatorFile(const std::filesystem::path& folder, const RunningCoordinator& coordinator);
  /// Removes the file, unless another coordinator's is there by now.
  ~CoordinatorFile();
  CoordinatorFile(const CoordinatorFile&) = delete;
  CoordinatorFile& operator=(const CoordinatorFile&) = delete;

 private:
  std::filesystem::path path_;
  int64_t pid_;
};

/// The coordinator that runs in `folder` on this machine, its status on. Throws InputError that
/// says why there is none.
RunningCoordinator running_coordinator(const std::filesystem::path& folder);

/// The folders in `parent` where one runs, sorted.
std::vector<std::filesystem::path> running_in(const std::filesystem::path& parent);

}  // namespace atl::run
