#pragma once
// What a coordinator is told about its run before anything happens.
#include <cstdint>
#include <map>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/hash.h"
#include "atoll/coordinator/suspicion.h"
#include "atoll/swarm/version.h"

namespace atl::swarm {

struct CoordinatorOptions {
  std::string run;                              // Names the run in every message.
  std::string version = program_version();      // Islands must run the same.
  std::string config;                           // Handed to every island.
  std::map<std::string, std::string> settings;  // By name, to compare with Hello's.
  int64_t replicas = 2;                         // Islands that the run begins with.
  int64_t min_replicas = 1;                     // With fewer, rounds wait, unless it stops.
  bool ends_together = false;                   // Rounds wait when one stops, too.
  int64_t steps = 0;                            // Of the run, after which it is over; 0: not known.
  int64_t num_fragments = 1;                    // Rounds in a period of the method.
  bool takes_newcomers = true;                  // The method: others can be given its state.
  bool keeps_rounds = false;      // Islands keep what was committed after their checkpoints.
  int64_t most_lost = INT64_MAX;  // Steps from the newest checkpoint to the newest commit, at most.
  int64_t most_ahead = 64;        // Steps that a checkpoint may be beyond the newest commit.
  int64_t steps_ahead = 64;       // For which each island has rows at least.
  /// Pace `elastic`: units that all islands together train on between two rounds, which this
  /// coordinator calls. 0: `lockstep`, where a round is due at one step of all islands.
  int64_t round_units = 0;
  /// Whose contribution's norm is over so many times the usual one is left out; 0: nobody is.
  double outlier_factor = 10;
  bool compares_directions = true;  // Of contributions, too: they are of enough steps.
  uint64_t least_term = 1;  // A clock's seconds, so that terms rise though a journal was lost.
  Digest circuit_secret{};  // Random: of it the names of circuits are made, where members meet.
  Duration silence_timeout = std::chrono::seconds(30);  // At most, before silence is a loss.
  Duration alive_interval = std::chrono::milliseconds(200);
  Duration hello_timeout = std::chrono::seconds(10);    // A connection that says nothing is closed.
  Duration return_grace = std::chrono::seconds(5);      // For members, after this process began.
  Duration leave_patience = std::chrono::seconds(30);   // With others that lack what a leaver has.
  Duration removal_timeout = std::chrono::minutes(10);  // After which who is away is forgotten.
  Duration round_timeout = std::chrono::minutes(10);    // For who is here and does nothing.

  SuspicionOptions suspicion() const;
};

}  // namespace atl::swarm
