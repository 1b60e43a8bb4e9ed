#pragma once
// All cells of a sweep together: what each grid trains, "best" values taken from earlier grids, and
// what is to be trained next. Pure, and like the search a function of what is known alone.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/sweep/sweep_search.h"

namespace atl::sweep {

/// One cell as one grid searches it.
struct GridCell {
  std::string grid;
  Cell cell;
  CellState state;
  std::string blocked;  // It will never start: why.
  std::string waits;    // It has not started yet: for what.
};

struct SweepState {
  std::vector<GridCell> cells;  // In the order of the file.
  /// Nothing is left to train.
  bool done() const;
  /// What can be trained now, each point once, in the order of the cells.
  std::vector<SweepPoint> wanted() const;
  /// All that was asked for so far, each point once.
  std::vector<SweepPoint> points() const;
};

/// What the plan has to know of the models.
struct PlanRules {
  int64_t sequence_length = 1;
  Obstacle obstacle;
};

/// `pretend` as in search_cell().
SweepState plan_sweep(const SweepSpec& spec, const PlanRules& rules, const Known& known,
                      bool pretend);

/// All cells of a grid: data-parallel has one method and no sync_every.
std::vector<Cell> cells_of(const Grid& grid);

/// The places that a grid names, with its first seed; "best" axes stay 0. For checks.
std::vector<SweepPoint> named_points(const Grid& grid);

/// Throws UsageError where "best" has no earlier grid with the same size, replicas and method, and
/// where a batch cannot be dealt to the replicas in whole rows.
void check_plan(const SweepSpec& spec, const PlanRules& rules, const std::string& where);

/// Inner steps for so many tokens: the nearest whole number, and a multiple of `period`
/// (sync_every) where that changes the tokens by no more than half a percent.
int64_t steps_for(double tokens, double batch_tokens, int64_t period);

}  // namespace atl::sweep
