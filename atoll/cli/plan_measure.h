#pragma once
// `atoll plan --measure`: this machine as an [[island]] of a PLAN.toml.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/cli/plan_line.h"

namespace atl::cli {

struct MeasureOptions {
  LineOptions line;
  std::string config;                  // Of the model; empty: a small one.
  std::string name;                    // Empty: the machine's.
  std::string out;                     // Empty: printed alone.
  int64_t processes = 1;               // Of the island; measured at once.
  std::vector<std::string> overrides;  // "section.key=value", of the model and its training.
  bool json = false;
};

/// Throws UsageError and InputError.
void measure_island(const MeasureOptions& options);

}  // namespace atl::cli
