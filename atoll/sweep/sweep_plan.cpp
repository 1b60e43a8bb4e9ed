#include "atoll/sweep/sweep_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>

#include "atoll/base/error.h"
#include "atoll/method/method.h"

namespace atl::sweep {
namespace {

constexpr double kTokensTolerance = 0.005;

bool uses(const Cell& cell, Axis axis) {
  if (axis != kOuterLr) return true;
  return cell.replicas > 0 && method::method_of({.method = cell.method}).uses("outer_lr");
}

bool is_alike(const Cell& a, const Cell& b) {
  return a.size == b.size && a.replicas == b.replicas && a.method == b.method;
}

/// |ln(a / b)|, the same to the bit for the same ratio; 0 where both are 0.
double log_distance(double a, double b) {
  return a == b ? 0 : std::log(std::max(a, b) / std::min(a, b));
}

/// How far two lists of batches are apart: the most by which a value of one is from its nearest in
/// the other (Hausdorff's, of logarithms). A list that is not known yet ("best") is the furthest; a
/// grid that has none of its own finds all alike.
double batch_distance(const AxisValues& a, const AxisValues& b) {
  if (a.is_best) return 0;
  double most = 0;
  for (const auto& [from, to] :
       {std::pair(&a.values, &b.values), std::pair(&b.values, &a.values)}) {
    for (const double one : *from) {
      double nearest = std::numeric_limits<double>::infinity();
      for (const double other : *to) nearest = std::min(nearest, log_distance(one, other));
      most = std::max(most, nearest);
    }
  }
  return most;
}

/// How far a grid's cell is from one of the same size, replicas and method: the nearest are asked.
/// Where the grid names its batches they decide before all else: rates go with the batch.
std::tuple<double, double, double> distance(const Grid& grid, const Cell& cell,
                                            const Grid& other_grid, const Cell& other) {
  return {batch_distance(grid.axes[kBatchTokens], other_grid.axes[kBatchTokens]),
          log_distance(static_cast<double>(cell.sync_every), static_cast<double>(other.sync_every)),
          log_distance(cell.tokens_factor, other.tokens_factor)};
}

double batch_unit(const PlanRules& rules, const Cell& cell) {
  return static_cast<double>(rules.sequence_length * std::max<int64_t>(1, cell.replicas));
}

class Planner {
 public:
  Planner(const SweepSpec& spec, const PlanRules& rules, const Known& known, bool pretend)
      : spec_(spec), rules_(rules), known_(known), pretend_(pretend) {}

  SweepState run() {
    for (const Grid& grid : spec_.grids) {
      const size_t num_earlier = state_.cells.size();
      for (const Cell& cell : cells_of(grid)) add(grid, cell, num_earlier);
    }
    return std::move(state_);
  }

 private:
  void add(const Grid& grid, const Cell& cell, size_t num_earlier) {
    GridCell entry{.grid = grid.name, .cell = cell};
    CellTask task{.cell = cell,
                  .seeds = grid.seeds,
                  .search = grid.search,
                  .extensions = spec_.extensions,
                  .halving_rungs = spec_.halving_rungs,
                  .halving_rate = spec_.halving_rate,
                  .batch_unit = batch_unit(rules_, cell)};
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      if (!uses(cell, static_cast<Axis>(axis))) continue;
      task.axes[axis] = grid.axes[axis].values;
      if (!grid.axes[axis].is_best) continue;
      const auto value = best_before(grid, cell, axis, num_earlier, entry);
      if (value) task.axes[axis] = {*value};
    }
    if (!entry.blocked.empty()) {
      entry.waits.clear();
      entry.state.done = true;
    } else if (grid.starts_at_size_before) {
      start_at_size_before(grid, task, entry);
    }
    if (entry.blocked.empty() && entry.waits.empty()) {
      entry.state = search_cell(task, known_, rules_.obstacle, pretend_);
    }
    state_.cells.push_back(std::move(entry));
    grids_.push_back(&grid);
  }

  /// It waits while the search of the size before it is not done. Where that has no best, the
  /// middle is as good as any place.
  void start_at_size_before(const Grid& grid, CellTask& task, GridCell& entry) const {
    const auto size = std::ranges::find(grid.sizes, task.cell.size);
    if (size == grid.sizes.begin()) return;
    Cell before = task.cell;
    before.size = *std::prev(size);
    for (size_t i = 0; i < state_.cells.size(); ++i) {
      const GridCell& other = state_.cells[i];
      if (grids_[i] != &grid || other.cell != before) continue;
      if (!other.state.done && !pretend_) entry.waits = fmt::format("the size {}", before.size);
      if (other.state.best) task.start = other.state.best->point.at;
    }
  }

  /// Nothing while the earlier cells are not done: it waits; or they have no best: it is blocked.
  std::optional<double> best_before(const Grid& grid, const Cell& cell, size_t axis,
                                    size_t num_earlier, GridCell& entry) const {
    const GridCell* best = nullptr;
    std::vector<const GridCell*> nearest;
    std::tuple<double, double, double> least;
    for (size_t i = 0; i < num_earlier; ++i) {
      const GridCell& other = state_.cells[i];
      if (!is_alike(other.cell, cell)) continue;
      const auto far = distance(grid, cell, *grids_[i], other.cell);
      if (!nearest.empty() && far > least) continue;
      if (far < least) nearest.clear();
      least = far;
      nearest.push_back(&other);
    }
    for (const GridCell* other : nearest) {
      if (!other->state.done && !pretend_) {
        entry.waits = fmt::format("the grid '{}'", other->grid);
        return std::nullopt;
      }
      if (!other->state.best) continue;
      if (best == nullptr || other->state.best->rank() < best->state.best->rank()) best = other;
    }
    if (best != nullptr) return best->state.best->point.at[axis];
    entry.blocked = fmt::format("{} = \"best\": none of the points of '{}' finished",
                                kAxisNames[axis], nearest.empty() ? "" : nearest.front()->grid);
    return std::nullopt;
  }

  const SweepSpec& spec_;
  const PlanRules& rules_;
  const Known& known_;
  const bool pretend_;
  SweepState state_;
  std::vector<const Grid*> grids_;  // Of each cell.
};

std::vector<SweepPoint> unique(const std::vector<GridCell>& cells,
                               std::vector<SweepPoint> CellState::* points) {
  std::vector<SweepPoint> some;
  std::set<SweepPoint> seen;
  for (const GridCell& cell : cells) {
    for (const SweepPoint& point : cell.state.*points) {
      if (seen.insert(point).second) some.push_back(point);
    }
  }
  return some;
}

}  // namespace

bool SweepState::done() const {
  return std::ranges::all_of(cells, [](const GridCell& cell) { return cell.state.done; });
}
std::vector<SweepPoint> SweepState::wanted() const { return unique(cells, &CellState::wanted); }
std::vector<SweepPoint> SweepState::points() const { return unique(cells, &CellState::points); }

SweepState plan_sweep(const SweepSpec& spec, const PlanRules& rules, const Known& known,
                      bool pretend) {
  return Planner(spec, rules, known, pretend).run();
}

std::vector<Cell> cells_of(const Grid& grid) {
  std::vector<Cell> cells;
  for (const std::string& size : grid.sizes) {
    for (const int64_t replicas : grid.replicas) {
      const std::vector<std::string> parallel = {"data_parallel"};
      for (const std::string& method : replicas == 0 ? parallel : grid.methods) {
        const bool has_period = method::method_of({.method = method}).uses("sync_every");
        const std::vector<int64_t> none = {0};
        for (const int64_t sync_every : has_period ? grid.sync_every : none) {
          for (const double factor : grid.tokens_factors) {
            cells.push_back({size, replicas, method, sync_every, factor});
          }
        }
      }
    }
  }
  return cells;
}

std::vector<SweepPoint> named_points(const Grid& grid) {
  std::vector<SweepPoint> points;
  for (const Cell& cell : cells_of(grid)) {
    std::vector<SweepPoint> some = {{.cell = cell, .seed = grid.seeds.front()}};
    for (size_t axis = 0; axis < kNumAxes; ++axis) {
      if (!uses(cell, static_cast<Axis>(axis)) || grid.axes[axis].is_best) continue;
      std::vector<SweepPoint> more;
      for (SweepPoint point : some) {
        for (const double value : grid.axes[axis].values) {
          point.at[axis] = value;
          more.push_back(point);
        }
      }
      some = std::move(more);
    }
    points.insert(points.end(), some.begin(), some.end());
  }
  return points;
}

void check_plan(const SweepSpec& spec, const PlanRules& rules, const std::string& where) {
  std::vector<Cell> earlier;
  for (const Grid& grid : spec.grids) {
    const std::vector<Cell> cells = cells_of(grid);
    for (const Cell& cell : cells) {
      for (size_t axis = 0; axis < kNumAxes; ++axis) {
        if (!grid.axes[axis].is_best || !uses(cell, static_cast<Axis>(axis))) continue;
        if (std::ranges::any_of(earlier,
                                [&](const Cell& other) { return is_alike(other, cell); })) {
          continue;
        }
        throw UsageError(fmt::format(
            "{}: grid '{}': {} = \"best\", and no earlier grid has {} with {}; add it there, or "
            "give values",
            where, grid.name, kAxisNames[axis], cell.size,
            cell.replicas == 0 ? "replicas = 0"
                               : fmt::format("{} replicas and {}", cell.replicas, cell.method)));
      }
      for (const double batch : grid.axes[kBatchTokens].values) {
        const double unit = batch_unit(rules, cell);
        if (std::fmod(batch, unit) == 0) continue;
        throw UsageError(fmt::format(
            "{}: grid '{}': batch_tokens = {:.0f} cannot be dealt to {} in whole rows of {} tokens "
            "(train.sequence_length); make it a multiple of {:.0f}",
            where, grid.name, batch,
            cell.replicas > 1 ? fmt::format("{} replicas", cell.replicas) : "one replica",
            rules.sequence_length, unit));
      }
    }
    earlier.insert(earlier.end(), cells.begin(), cells.end());
  }
}

int64_t steps_for(double tokens, double batch_tokens, int64_t period) {
  const double steps = tokens / batch_tokens;
  const auto every = static_cast<double>(std::max<int64_t>(1, period));
  const double whole_periods = every * std::round(steps / every);
  const double chosen = std::abs(whole_periods - steps) <= kTokensTolerance * steps
                            ? whole_periods
                            : std::round(steps);
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(chosen, 1e15)));
}

}  // namespace atl::sweep
