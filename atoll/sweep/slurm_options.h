#pragma once
// What a sweep asks of Slurm: [slurm] of SWEEP.toml. LibTorch-free.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/base/settings.h"

namespace atl::sweep {

struct SlurmOptions {
  std::string partition;           // Empty: the cluster's default, here and below.
  std::string time;                // Limit for a point, as sbatch takes it: "2:00:00", "1-0", "90".
  std::string mem;                 // Memory for a point: "4G".
  int64_t cpus_per_task = 0;       // 0: as many as a point keeps busy.
  int64_t max_running = 0;         // Points at a time, of all arrays together; 0: any number.
  int64_t max_submitted = 0;       // Points that Slurm has at a time, waiting ones too; 0: all.
  double poll_seconds = 10;        // Between two questions to Slurm.
  std::vector<std::string> extra;  // Words for sbatch, each one option: "--account=x".

  void visit(SettingList& list);
};

constexpr size_t kMaxExtra = 100;

/// Of a TOML document whose only table is [slurm]. `where` (a file) is for messages. Throws
/// UsageError: unknown keys (naming the nearest), wrong types, values out of range, words in
/// `extra` that are no options, or options that the sweep gives itself.
SlurmOptions read_slurm_options(const TomlTable& document, const std::string& where);

}  // namespace atl::sweep
