#pragma once
// `atoll scaling simulate --from RUN`: a run's own numbers in the simulator, beside what it
// measured.
#include <string>
#include <vector>

#include "atoll/laws/utilisation.h"

namespace atl::cli {

struct FromRun {
  std::string run;        // The folder.
  std::string link_rate;  // As `atoll train` had it; empty: gbps, or what the run recorded.
  double gbps = 0;        // Of the lines, headers of packets included; 0: not given.
  std::vector<laws::SimulatedIsland> islands;  // In the order of their names; empty: all alike.
  std::vector<double> targets;
  std::string plot;
  bool json = false;
};

/// Prints the report, or draws it. Throws InputError about the run's files, UsageError about lines
/// that do not fit it.
void simulate_from(const FromRun& arguments);

}  // namespace atl::cli
