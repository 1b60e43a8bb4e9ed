#pragma once
// How much of its time each island of a run that was recorded would compute on lines of other
// rates; a plan writes the record of a run to come (plan_traffic.h). utilisation.h has the papers'
// model, in which a layer leaves as soon as its gradients are there; here steps, rounds and bytes
// are a run's own, and a round goes as this program sends it (docs/protocol.md): when the last
// member has taken its snapshot the coordinator opens the exchange, the parts cross everybody's
// line, each member takes the outer step, and when all have, the coordinator commits. Islands in
// lockstep. Pure; no thread rule.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/laws/utilisation.h"

namespace atl::laws {

/// Of what a line carries, the share that the program's own bytes are: of a full packet of 1500
/// bytes 52 are headers (IPv4, TCP, time stamps); and every other packet that comes is acknowledged
/// by one of 52, on the line that the own bytes leave by.
constexpr double kPayloadShare = 1448 / (1500 + 52.0 / 2);

/// Where an island's seconds went.
struct IslandTime {
  double computing_s = 0;
  double handling_s = 0;  // The training thread's own part in rounds.
  double waiting_s = 0;   // For the other members.
  double pausing_s = 0;   // Validation and checkpoints.

  /// The share that computed, pauses left out.
  double utilisation() const {
    const double all = computing_s + handling_s + waiting_s;
    return all > 0 ? computing_s / all : 1;
  }
  double total_s() const { return computing_s + handling_s + waiting_s + pausing_s; }
};

/// What an island had spent when it had taken that step.
struct Mark {
  int64_t step = 0;
  IslandTime spent;
};

struct RecordedIsland {
  std::string name;
  std::vector<Mark> marks;  // Steps rise, seconds do not fall; steps between two are all alike.
};

/// An island in a round.
struct RecordedPart {
  size_t island = 0;
  int64_t used_after = 0;  // The step behind which training had to have the result.
  double sent_bytes = 0;
  double received_bytes = 0;
  double prepare_s = 0;   // The outer step and its digest, beside training.
  double exchange_s = 0;  // As it was: from the snapshot to the commit.
};

struct RecordedRound {
  int64_t sent_after = 0;  // The step of the snapshots.
  bool gathers = true;     // collective::Topology: one trip; else contributions, then means.
  std::vector<RecordedPart> parts;
};

/// The rounds sent after the steps (after, after + every] stand for `times` more of each, `every`
/// steps later every time, in which all steps are alike.
struct Repetition {
  int64_t after = 0;
  int64_t every = 0;
  int64_t times = 0;
};

/// At least two islands, which all trained on some step, and a round; rounds in their order,
/// sent_after never falling. All numbers are finite and not negative.
struct RecordedRun {
  std::vector<RecordedIsland> islands;
  std::vector<RecordedRound> rounds;
  Repetition again;  // Of a planned run; records have all rounds.

  /// The steps (first, last] that all islands took.
  int64_t first_step() const;
  int64_t last_step() const;
};

struct RunTime {
  std::vector<IslandTime> islands;
  // From an island's snapshot to the commit:
  double exchange_s = 0;        // the mean over rounds, and
  double first_exchange_s = 0;  // of the first.

  /// Of all islands together.
  double utilisation() const;
  /// Until the last island is done.
  double wall_clock_s() const;
};

/// As the records say that it was.
RunTime measured(const RecordedRun& run);

/// The same steps on other lines: `islands` has one for each of the run's, whose latency here is
/// that of its own line, one way: a message to another island crosses both, one to the coordinator
/// one. `speed` is beside what it was. Rounds that repeat are walked until what comes is what has
/// been; the rest is multiplied.
RunTime simulate(const RecordedRun& run, std::span<const SimulatedIsland> islands, double gbps);

/// The least bandwidth, in Gbit/s, at which the run would have that utilisation, to a thousandth;
/// nothing where none gives it: islands of different speed wait for each other on any line.
std::optional<double> gbps_for(const RecordedRun& run, std::span<const SimulatedIsland> islands,
                               double target);

}  // namespace atl::laws
