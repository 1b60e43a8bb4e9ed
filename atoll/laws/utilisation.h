#pragma once
// How much of its time an island computes, and how much bandwidth that takes: Streaming DiLoCo's
// simulator, section 2.3 of the paper, extended. A step is a graph of layers: forward, and from the
// last layer to the first backward for activations (not for the first) and for parameters. They run
// one after the other, each a third of a layer's share of the step. A layer's reduction may start
// when its parameters' gradients are there on all islands; each island has one link, first come,
// first served; a layer's next use waits for the reduction. Pure; no thread rule.
//
// With failures what is wanted is a mean over many of them, hours of steps: whole periods between
// two of them that end as they began are skipped (island_walk.h). The work goes with the number of
// failures, and what comes out is a walk's of all steps to 1e-9.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace atl::laws {

enum class SimulatedMethod { kDataParallel, kDiloco, kStreamingDiloco };

/// What one island is, beside the others.
struct SimulatedIsland {
  double speed = 1;      // Times the step time's.
  double up = 1;         // Its uplink, times the bandwidth.
  double down = 1;       // Its downlink, times the bandwidth.
  double latency_s = 0;  // Of one exchange; an exchange takes the largest of its islands.
  // Both are of an uplink that the sender itself holds to its rate (recorded_run.h).
  double burst_s = 0;      // Seconds of sending that it makes good after a pause.
  double piece_bytes = 0;  // A piece of that size goes at once; another waits until it is through.
};

/// Islands that stop, at times drawn from a seed, and come back to the step that the others are at.
struct Failures {
  double mean_hours = 0;  // Between two failures of an island; 0: none.
  double recovery_s = 600;
  double detection_s = 10;  // For so long the others wait for one that is gone.
  uint64_t seed = 0;
};

struct Workload {
  double params = 0;
  int layers = 0;
  double step_s = 0;  // Of an island of speed 1, all computing.
  SimulatedMethod method = SimulatedMethod::kDiloco;
  int sync_every = 100;  // Inner steps; 1 for data-parallel.
  int fragments = 1;     // Streaming: the layers' parts, strided; embeddings carry nothing.
  int delay = 0;         // Steps that a reduction may take beside computing.
  double bits = 16;      // Per parameter, on the wire.
  std::vector<SimulatedIsland> islands = {SimulatedIsland{}};
  Failures failures;
  // Steps simulated; 0: ten periods and one step, or 40 of data-parallel; with failures until
  // kFailures of them are expected, or the work is as much as a simulation may be.
  int64_t steps = 0;

  /// At least, where failures decide.
  int64_t num_steps() const;
  /// A third of a layer's share of a step.
  double unit_s() const { return step_s / (3.0 * layers); }
};

/// Another seed changes what failures cost by 1 / sqrt(kFailures), about 3 % (standard deviation).
constexpr double kFailures = 1000;

/// Throws UsageError naming the field that is out of range or does not go with the method.
void check(const Workload& workload);

struct Simulated {
  double utilisation = 0;  // The share of all islands' capacity that computed.
  int64_t steps = 0;
  double seconds = 0;
  double expected_failures = 0;  // Of all islands in that time, whatever the seed.
};

/// With a bandwidth of `gbps`. Throws UsageError where failures come so often that the steps
/// asked for are too many.
Simulated simulate(const Workload& workload, double gbps);
inline double utilisation(const Workload& workload, double gbps) {
  return simulate(workload, gbps).utilisation;
}

/// The papers' grid of bandwidths: 10^(-1 + 4k/49) Gbit/s.
constexpr int kGridSize = 50;
double grid_gbps(int index);

/// The first grid point that reaches the target; nothing where none does.
std::optional<int> grid_index(const std::array<double, kGridSize>& grid, double target);

/// Bits on the wire of one printed bit: the papers' tables come out with 13.35 bits where they
/// say 16. One constant for all rows; nobody has explained it.
constexpr double kPaperCalibration = 13.35 / 16;

std::string method_name(SimulatedMethod method);
std::optional<SimulatedMethod> simulated_method(const std::string& name);

}  // namespace atl::laws
