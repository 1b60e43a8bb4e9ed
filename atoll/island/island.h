#pragma once
// A replica as a process: alone, or as an island that joins a coordinator. Gathers the data and the
// model, finds the checkpoint to go on from, and trains.
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/group/processes.h"
#include "atoll/island/materials.h"
#include "atoll/net/transport.h"
#include "atoll/run/config.h"
#include "atoll/run/initial_model.h"
#include "atoll/run/progress.h"

namespace atl::island {

using ProgressCallback = std::function<void(const run::Progress&)>;

/// Trains one replica in this process, or in those that it leads (null: it is alone). `config` is
/// complete (data.path names a store). Resumes when the directory has checkpoints. Throws
/// InputError.
run::Summary train_alone(const run::RunConfig& config, const std::filesystem::path& folder,
                         const run::InitialModel& init, const FindServers& find_servers,
                         const Clock& clock, const ProgressCallback& on_progress,
                         group::Processes* processes = nullptr);

struct JoinOptions {
  /// HOST:PORT, or HOST:PORT/NAME of one of its runs; or an invite, as identity/invite.h writes it.
  /// Empty: where the folder's member joined before.
  std::string coordinator;
  std::string listen;     // Empty: where the coordinator's machine can reach this one.
  std::string advertise;  // HOST:PORT that others are told instead of it; empty: `listen`.
  std::string name;
  std::filesystem::path folder;  // Empty: a new one is made.
  run::InitialModel init;
  FindServers find_servers;
  std::vector<std::string> overrides;  // Local settings apply; shared ones must be the run's own.
  double link_rate_bits_per_s = 0;     // 0: unlimited.
  bool insecure = false;
  group::Processes* processes = nullptr;  // Of this island, which this one leads; null: one.
  /// What all frames shall pass through; tests put a peer that misbehaves there.
  std::function<std::unique_ptr<net::Transport>(std::unique_ptr<net::Transport>)> around_transport;
};

/// Joins a run and trains to its end. Throws InputError when it is refused, when the coordinator
/// cannot be reached, or when a peer is lost.
run::Summary join_run(const JoinOptions& options, const Clock& clock,
                      const ProgressCallback& on_progress);

}  // namespace atl::island
