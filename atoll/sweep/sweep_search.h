#pragma once
// The search within one cell of a sweep: which places (learning rate, outer rate, batch) to train
// next, from what is known so far, and whether the best of them is interior. The papers' rule is
// kept in its local form: the best place is interior when it has a neighbour on both sides of every
// swept axis, which says nothing of places diagonal to it; a neighbour beyond the given values is
// an extension, by the same ratio (outer_lr: by the same difference). A pure function of its
// arguments: whatever the order in which points end, the same points are trained.
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "atoll/sweep/sweep_spec.h"

namespace atl::sweep {

/// What is compared with what: the places of one cell differ in the swept settings alone.
struct Cell {
  std::string size;
  int64_t replicas = 0;  // 0: data-parallel.
  std::string method;
  int64_t sync_every = 0;  // 0: the method has none.
  double tokens_factor = 1;

  auto operator<=>(const Cell&) const = default;
};

/// "60k, 2 replicas, diloco, H 30, tokens x4".
std::string cell_name(const Cell& cell);

/// One training run.
struct SweepPoint {
  Cell cell;
  std::array<double, kNumAxes> at = {};  // lr, outer_lr, batch_tokens; 0: not used.
  double tokens_share = 1;               // Of the cell's tokens; below 1 on halving's first rungs.
  int64_t seed = 1;

  auto operator<=>(const SweepPoint&) const = default;
};

/// Its cell's name, and the settings that are swept.
std::string place_name(const SweepPoint& point);

/// Of a point that is over.
struct Outcome {
  std::optional<double> loss;  // Nats per token; nothing: it failed.
};
using Known = std::function<std::optional<Outcome>(const SweepPoint&)>;

/// Why a point cannot be trained; empty: it can.
using Obstacle = std::function<std::string(const SweepPoint&)>;

struct CellTask {
  Cell cell;
  std::array<std::vector<double>, kNumAxes> axes;  // Ascending; empty: not used.
  std::array<double, kNumAxes> start = {};         // Where a descent starts; 0: in the middle.
  std::vector<int64_t> seeds;
  Search search = Search::kGrid;
  int64_t extensions = 0;
  int64_t halving_rungs = 3;
  int64_t halving_rate = 2;
  double batch_unit = 1;  // Batches are multiples of it.
};

/// How the best place lies on one axis.
enum class AxisEnd { kUnused, kFixed, kInterior, kLow, kHigh };
struct AxisState {
  AxisEnd end = AxisEnd::kUnused;
  double low = 0;  // Of the values tried.
  double high = 0;
  int64_t extensions = 0;
  std::string limit;  // At a border: why it goes no further.
  bool beside_failed = false;
  bool beside_lesser = false;  // A neighbour was left behind with fewer tokens (halving).
};

struct BestPlace {
  SweepPoint point;  // With the first seed that finished.
  double loss = 0;   // Mean over the seeds that finished.
  double deviation = 0;
  size_t num_seeds = 0;   // That finished.
  size_t num_failed = 0;  // Seeds.

  /// The lower the better: a place where fewer seeds fail is better whatever the losses.
  std::pair<size_t, double> rank() const { return {num_failed, loss}; }
};

struct CellState {
  bool done = false;
  std::vector<SweepPoint> points;  // All that the search has asked for so far.
  std::vector<SweepPoint> wanted;  // Those of them that are not known.
  size_t num_failed = 0;
  std::optional<BestPlace> best;  // Of those trained on all tokens.
  std::array<AxisState, kNumAxes> axes;
};

/// With `pretend` a point that is not known counts as worse than all that are, and the worse the
/// further it lies from the start: `wanted` is then what is still to come if nothing else turns
/// out.
CellState search_cell(const CellTask& task, const Known& known, const Obstacle& obstacle,
                      bool pretend);

/// The part of a cell's tokens that halving's rung trains with, from 0 on.
double rung_share(int64_t rung, int64_t rungs, int64_t rate);

/// The value `index` steps from the first of an axis's values; those beyond them are extrapolated.
/// Nothing: there is none (not positive, or no whole batch). `unit` is that of batches.
std::optional<double> axis_value(Axis axis, const std::vector<double>& values, int64_t index,
                                 double unit);

}  // namespace atl::sweep
