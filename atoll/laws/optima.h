#pragma once
// Where a sweep's best batch or learning rate lies: the papers' rule is a parabola in the logarithm
// of the setting, through the best loss at each of its values. Plain values.
#include <map>
#include <vector>

#include "atoll/laws/power_law.h"
#include "atoll/laws/table.h"

namespace atl::laws {

using Setting = std::optional<double> Run::*;

/// The optima of one setting, a value of it for each (size, replicas) whose sweep holds one.
struct Optima {
  std::vector<Point> points;     // value: the setting's.
  std::vector<Refusal> refused;  // Sweeps without one: too few values, or the best at the border.
};

/// The minimiser of the parabola of loss over log2(setting), from the smallest loss at each value,
/// of runs that compare (comparable.h).
/// Refused for sweeps of fewer than three values, or whose best value is the first or the last.
/// Runs without the setting do not count; `name` is the setting's, for messages.
Optima quadratic_optima(const std::vector<Run>& runs, Setting setting, const std::string& name);

/// What the outer rate's best values were at one number of replicas; sizes do not matter to it.
struct OuterRate {
  double mean = 0;
  double low = 0;
  double high = 0;
};
/// By replicas, from the best run of each size. Empty without the column.
std::map<double, OuterRate> outer_rates(const std::vector<Run>& runs);

}  // namespace atl::laws
