#pragma once
// The report of a sweep as a page of Markdown. Pure.
#include <string>
#include <vector>

#include "atoll/sweep/sweep_results.h"

namespace atl::sweep {

/// A point that failed, and the last lines that it said.
struct FailedPoint {
  SweepPoint point;
  std::string message;
};

struct SweepTotals {
  std::string name;
  size_t num_points = 0;    // That are over, failed ones too.
  size_t num_missing = 0;   // Asked for and not over: the sweep was stopped, or
  std::string shortage;     // there is no room for them: a sentence.
  double tokens = 0;        // That the finished ones trained on.
  double core_seconds = 0;  // That took.
  std::string count;        // How parameters are counted, in words.
};

/// "lr interior", "outer_lr at its largest, 1, after 4 extensions".
std::string axis_text(Axis axis, const AxisState& state);

/// Why a cell has no best place: "not finished, 2 of 3 points so far".
std::string without_best_text(const GridCell& cell);

/// "1 of 3 seeds failed", or nothing.
std::string failed_seeds_text(const BestPlace& best);

/// A point's cell and place, in words.
std::string point_text(const SweepPoint& point);

std::string sweep_report(const SweepTotals& totals, const SweepState& state,
                         const std::vector<Family>& families,
                         const std::vector<FailedPoint>& failed, const ResultRules& rules);

}  // namespace atl::sweep
