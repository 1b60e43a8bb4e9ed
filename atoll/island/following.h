#pragma once
// An island of several processes (atoll/group): what process 0, which is the island to all others,
// makes of a training run for the rest of them, and what these do.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/group/leader.h"
#include "atoll/group/processes.h"
#include "atoll/run/config.h"

namespace atl::island {

struct TrainingParts;

/// What the processes of an island were started with, each by itself.
struct Asked {
  std::filesystem::path config_file;  // Empty: none.
  std::vector<std::string> overrides;
};

/// A process alone has the first of one place.
run::ProcessPlace place_of(const group::Processes* processes);

/// Null where the run has one process. The parts outlive it.
std::unique_ptr<group::Leader> make_leader(const TrainingParts& parts);

/// Process 0, once all are there: the others compare.
void tell_asked(group::Processes& processes, const Asked& asked);

/// Does what process 0 says until the work is done. Throws InputError when a process is lost, or
/// this one was asked for other settings, naming the first; the others hear of it.
void follow(group::Processes& processes, const Asked& asked);

}  // namespace atl::island
