#pragma once
// How much of its time an island computes, and how much bandwidth that takes: Streaming DiLoCo's
// simulator, section 2.3 of the paper, extended. A step is a graph of layers: forward, and from the
// last layer to the first backward for activations (not for the first) and for parameters. They run
// one after the other, each a third of a layer's share of the step. A layer's reduction may start
// when its parameters' gradients are there on all islands; each island has one link, first come,
// first served; a layer's next use waits for the reduction. Pure; no thread rule.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace atl::scaling {

enum class Method { kDataParallel, kDiloco, kStreamingDiloco };

/// What one island is, beside the others.
struct SimulatedIsland {
  double speed = 1;      // Times the step time's.
  double up = 1;         // Its uplink, times the bandwidth.
  double down = 1;       // Its downlink, times the bandwidth.
  double latency_s = 0;  // Of one exchange; an exchange takes the largest of its islands.
  // Of an uplink that the sender itself holds to its rate (recorded_run.h):
  double burst_s = 0;      // what it makes good after a pause;
  double piece_bytes = 0;  // a piece of that size goes at once, and the next one waits for it.
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
  Method method = Method::kDiloco;
  int sync_every = 100;  // Inner steps; 1 for data-parallel.
  int fragments = 1;     // Streaming: the layers' parts, strided; embeddings carry nothing.
  int delay = 0;         // Steps that a reduction may take beside computing.
  double bits = 16;      // Per parameter, on the wire.
  std::vector<SimulatedIsland> islands = {SimulatedIsland{}};
  Failures failures;
  int steps = 0;  // Simulated; 0: ten periods and one step, or 40 of data-parallel.

  int num_steps() const;
};

/// Throws UsageError naming the field that is out of range or does not go with the method.
void check(const Workload& workload);

/// The share of all islands' capacity that computed, with a bandwidth of `gbps`.
double utilisation(const Workload& workload, double gbps);

/// The papers' grid of bandwidths: 10^(-1 + 4k/49) Gbit/s.
constexpr int kGridSize = 50;
double grid_gbps(int index);
std::array<double, kGridSize> utilisation_on_grid(const Workload& workload);

/// The first grid point that reaches the target; nothing where none does.
std::optional<int> grid_index(const std::array<double, kGridSize>& grid, double target);

/// Bits on the wire of one printed bit: the papers' tables come out with 13.35 bits where they
/// say 16. One constant for all rows; nobody has explained it.
constexpr double kPaperCalibration = 13.35 / 16;

std::string method_name(Method method);
std::optional<Method> method_of(const std::string& name);

}  // namespace atl::scaling
