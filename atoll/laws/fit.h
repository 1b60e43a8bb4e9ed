#pragma once
// Everything that `atoll scaling fit` finds in a table of runs. Plain values; no thread rule.
#include <map>
#include <optional>
#include <vector>

#include "atoll/laws/optima.h"
#include "atoll/laws/parametric.h"
#include "atoll/laws/power_law.h"
#include "atoll/laws/table.h"

namespace atl::laws {

struct FitOptions {
  ParametricOptions parametric;
  int bootstrap = 1000;  // Redraws of the residuals; 0: no intervals.
  double confidence = 0.95;
};

/// The ends of a coefficient's interval, by the coefficient's place.
using Intervals = std::vector<std::pair<double, double>>;

struct LawIntervals {
  std::map<double, Intervals> independent;  // A, alpha.
  Intervals joint;                          // A, alpha, beta.

  /// Of the law of so many replicas; empty: there are none.
  Intervals of(double replicas) const;
};

/// "1.5 [1.4, 1.6]"; without an interval the value alone.
std::string with_interval(double value, const Intervals& intervals, size_t i);

/// A parametric form fitted without the largest size.
struct HeldOutForm {
  ParametricFit fit;
  double residual = 0;  // Mean |ln y - ln y'| at the largest size.
  Intervals intervals;  // As the fit's coefficients.
};

/// loss = intercept + slope ln(flops).
struct ComputeLine {
  double intercept = 0;
  double slope = 0;
};

struct FitReport {
  std::vector<Point> points;  // The best loss of each size and number of replicas.
  double smallest = 0;        // Sizes of the points.
  double largest = 0;
  PowerLaws loss;
  LawIntervals loss_intervals;
  LeaveOneOut leave_one_out;
  std::vector<HeldOutForm> parametric;
  std::map<double, ComputeLine> compute;  // By replicas; empty without flops or tokens.
  Optima batch_optima;                    // Tokens.
  Optima lr_optima;
  PowerLaws batch;  // Empty without sweeps.
  PowerLaws lr;
  std::map<double, OuterRate> outer_lr;
  std::vector<Refusal> refused;  // Of all of these.
};

/// Fits all laws that the runs, which must compare (comparable.h), allow; what they do not allow is
/// in `refused`. Throws InputError when they allow no law of the loss at all.
FitReport fit_runs(const std::vector<Run>& runs, const FitOptions& options);

/// Throws InputError, with the reason, when they hold none.
void require_law(const PowerLaws& laws);

/// The points of the loss laws: the best of each size and number of replicas.
std::vector<Point> loss_points(const std::vector<Run>& runs);

}  // namespace atl::laws
