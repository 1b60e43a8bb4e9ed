#pragma once
// How many bytes a run moves, and how its exchanges load each island's line: the codecs' own bits,
// and the exchange as collective/exchange.h does it. Pure.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/model/config.h"
#include "atoll/scaling/utilisation.h"
#include "atoll/sync/options.h"

namespace atl::scaling {

/// How many times each member sends, and receives, the encoding of all values in a round, with
/// lines of those rates (bits per second; the rule of shares is swarm/rules.h's).
std::vector<double> copies_per_round(const sync::SyncOptions& sync, std::span<const double> rates);

/// How many values each member contributes in a run of so many steps: whole rounds, and what the
/// last step sends (sync/fragments.h).
double values_exchanged(const sync::SyncOptions& sync, std::span<const model::ParameterSpec> specs,
                        int64_t steps);

/// Bits of a value on the wire.
double bits_per_value(const sync::SyncOptions& sync);

/// Round trips in an exchange: to the coordinator before and after it, and between members the
/// contributions and, where shares are summed, the means.
double round_trips(const sync::SyncOptions& sync, int num_members);

/// An island while it trains, beside the others.
struct LoadedIsland {
  double step_s = 0;  // Of one step, computing alone.
  double bits_per_s = 0;
  double latency_s = 0;  // Round trip.
};

/// The run as utilisation() simulates it, three periods of it. Islands that are alike are one:
/// `steps_per_s` brings that back.
struct SimulatedRun {
  Workload workload;
  /// Of the whole run, waiting included, at that bandwidth factor.
  double steps_per_s(double factor = 1) const;
};
SimulatedRun simulated_run(double params, int64_t layers, const sync::SyncOptions& sync,
                           std::span<const LoadedIsland> islands);

}  // namespace atl::scaling
