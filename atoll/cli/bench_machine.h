#pragma once
// What `atoll bench` measures on this machine: one process after the other, and its own transport.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/cli/plan_line.h"
#include "atoll/plan/machine_report.h"
#include "atoll/weights/config.h"

namespace atl::cli {

/// A model, and the rows of a step.
struct BenchSize {
  std::string name;
  weights::ModelConfig model;
  int64_t rows = 0;
  int64_t sequence_length = 0;
};

/// The smallest first.
std::vector<BenchSize> bench_sizes();

struct BenchOptions {
  std::string device = "cpu";
  int64_t threads = 0;  // 0: all cores.
  bool quick = false;
  std::vector<BenchSize> sizes;
  /// The user named the sizes: one that does not fit is an error. Else it is left out, with a word.
  bool requires_all = false;
  LineOptions line;
};

/// All but the line. Throws UsageError and InputError.
plan::MachineReport measure_all(const BenchOptions& options, const Clock& clock);

}  // namespace atl::cli
