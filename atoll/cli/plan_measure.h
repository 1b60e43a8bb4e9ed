#pragma once
// `atoll plan --measure`: this machine as an [[island]] of a PLAN.toml.
#include <string>
#include <vector>

namespace atl::cli {

struct MeasureOptions {
  std::string coordinator;             // HOST:PORT; empty: the line is not measured.
  std::string config;                  // Of the model; empty: a small one.
  std::string name;                    // Empty: the machine's.
  std::string out;                     // Empty: printed alone.
  std::vector<std::string> overrides;  // "section.key=value", of the model and its training.
  bool insecure = false;
  bool json = false;
};

/// Throws UsageError and InputError.
void measure_island(const MeasureOptions& options);

}  // namespace atl::cli
