#pragma once
// Slurm's commands as processes: found on PATH, bounded in time and in what they print. LibTorch-
// free. One owner thread.
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/clock.h"

namespace atl::sweep {

class SlurmCommands {
 public:
  /// What the commands write on stderr goes through a file in `folder`, which exists. Throws
  /// InputError naming those of sbatch, squeue, scancel and scontrol that are not on PATH.
  SlurmCommands(std::filesystem::path folder, const Clock& clock);

  /// What the command prints on stdout. It does not see the user's own defaults, where these would
  /// change what a question means (is_in_the_way()). Throws InputError with the command, its exit
  /// code and its stderr when it fails, takes over kMaxSeconds, or prints over kMaxSlurmOutput
  /// bytes.
  std::string run(const std::string& program, const std::vector<std::string>& arguments) const;

 private:
  std::filesystem::path folder_;
  const Clock& clock_;
};

}  // namespace atl::sweep
