#pragma once
// One process at a time changes a file: the coordinator and a command of its operator work in the
// same folder, and several islands on one machine.
#include <filesystem>

#include "atoll/base/descriptor.h"

namespace atl {

class FileLock {
 public:
  /// Waits for the others; held while it lives. The lock lies beside `path`, which is replaced as a
  /// whole. Throws InputError.
  explicit FileLock(const std::filesystem::path& path);

 private:
  Descriptor file_;  // Closing it lets go.
};

}  // namespace atl
