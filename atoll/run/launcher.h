#pragma once
// `atoll train --islands N`: a coordinator and N islands as processes of their own on this machine,
// shown on one terminal. The processes share nothing but network connections (and the token store
// on disk). LibTorch-free: the islands are started, not linked.
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/run/config.h"
#include "atoll/run/initial_model.h"
#include "atoll/run/progress.h"

namespace atl::run {

struct LaunchOptions {
  std::filesystem::path program;  // The `atoll` command.
  std::filesystem::path folder;   // The run directory; the islands use folder/island-0, ...
  RunConfig config;               // swarm.replicas says how many islands; data.path is a store.
  std::string link_rate;          // Of each island's sending side, e.g. "20mbit"; empty: unlimited.
  InitialModel init;
  int64_t processes = 1;  // Of each island.
  bool together = false;  // A lost island ends the run as a failure; else the others go on.
};

/// What the islands reported, in order. All hold the same global model, or this throws InputError:
/// when an island or the coordinator ends badly it says which, why, and how to resume.
std::vector<Summary> launch(const LaunchOptions& options, const Clock& clock);

/// The line of JSON by which an island tells its launcher of its progress and its end.
std::string progress_message(const Progress& progress);
std::string summary_message(const Summary& summary);

}  // namespace atl::run
