#pragma once
// The rounds of a planned run: when, how many bytes, and how long all of it takes. What is sent
// and when is sync/'s rule, how a round goes recorded_run.h's: a plan is the record of a run that
// nobody has trained yet. Pure.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/laws/recorded_run.h"
#include "atoll/method/sync_options.h"
#include "atoll/weights/config.h"

namespace atl::plan {

/// Bits of a value on the wire.
double bits_per_value(const method::SyncOptions& sync);

/// How many times each member sends, and receives, the encoding of all values in a round, with
/// lines of those rates (bits per second; the rule of shares is swarm/rules.h's).
std::vector<double> copies_per_round(const method::SyncOptions& sync,
                                     std::span<const double> rates);

/// Values of what is sent on its own: of each fragment, or of the whole model.
std::vector<double> values_sent(const method::SyncOptions& sync,
                                std::span<const weights::ParameterSpec> specs);

/// A round of all islands.
struct PlannedRound {
  int64_t sent_after = 0;
  int64_t used_after = 0;
  double values = 0;
  int64_t times = 1;  // So often, with those that repeat it.

  /// Nobody computes until it is over.
  bool is_waited_for() const { return used_after == sent_after; }
};

struct PlannedRounds {
  int64_t steps = 0;
  std::vector<PlannedRound> rounds;
  laws::Repetition again;

  /// That a member contributes in all of them.
  double values() const;
};

/// Those of a run of so many steps, at least one, with what values_sent() says: the last step sends
/// everything.
PlannedRounds planned_rounds(const method::SyncOptions& sync, std::span<const double> values,
                             int64_t steps);

/// An island while it trains, beside the others.
struct LoadedIsland {
  double step_s = 0;  // Of one step, computing alone.
  double up_bits_per_s = 0;
  double down_bits_per_s = 0;
  double latency_s = 0;  // Round trip to the coordinator.
};

/// The same as a record: of at least two islands.
laws::RecordedRun planned_run(const PlannedRounds& rounds, const method::SyncOptions& sync,
                              std::span<const LoadedIsland> islands);

/// Their lines, for simulate() with 1 Gbit/s.
std::vector<laws::SimulatedIsland> planned_lines(std::span<const LoadedIsland> islands);

/// Where the islands' time goes, one or more of them.
laws::RunTime planned_time(const PlannedRounds& rounds, const method::SyncOptions& sync,
                           std::span<const LoadedIsland> islands);

/// Not more than planned_time() takes, and cheap: the slowest computes all steps, and nobody
/// computes while a round is waited for; all rounds leave behind each other, from the first one on.
double least_time(const PlannedRounds& rounds, const method::SyncOptions& sync,
                  std::span<const LoadedIsland> islands);

}  // namespace atl::plan
