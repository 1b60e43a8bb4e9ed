#pragma once
// The parametric forms of Scaling Laws for DiLoCo, Table 13, fitted as there: Huber loss on the
// difference of logarithms, many random starts, the largest size held out. Plain values.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "atoll/laws/power_law.h"

namespace atl::laws {

/// A form is a sum of terms scale * exp(sum of exponent * feature(N, M)), each positive.
struct Exponent {
  const char* name;
  double (*feature)(double params, double replicas);
};
struct Term {
  const char* scale;
  std::vector<Exponent> exponents;
};
struct Form {
  const char* name;  // As the paper prints it.
  std::vector<Term> terms;
  size_t num_coefficients() const;
};
/// The four of Table 13, in its order.
const std::vector<Form>& parametric_forms();
/// A N^a + C, for data-parallel runs.
const Form& single_form();

struct ParametricOptions {
  int num_starts = 256;
  uint64_t seed = 0;
  double huber_delta = 1e-3;  // Of |ln y - ln y'|: beyond it the loss grows linearly.
};

/// A form with its coefficients, in the order of its terms: scale, exponents.
class ParametricFit {
 public:
  ParametricFit(const Form& form, std::vector<double> coefficients, double objective)
      : form_(&form), coefficients_(std::move(coefficients)), objective_(objective) {}

  const Form& form() const { return *form_; }
  std::vector<std::string> names() const;
  const std::vector<double>& coefficients() const { return coefficients_; }
  double predict(double params, double replicas) const;
  /// The sum of Huber losses, in units of delta squared.
  double objective() const { return objective_; }
  /// The mean of |ln y - ln y'| over the points.
  double mean_residual(const std::vector<Point>& points) const;

 private:
  const Form* form_;
  std::vector<double> coefficients_;
  double objective_;
};

/// The best of all starts by the objective: what is held out must not choose. There must be more
/// points than coefficients; throws InputError otherwise.
ParametricFit fit_parametric(const Form& form, const std::vector<Point>& points,
                             const ParametricOptions& options);

/// From one start, that fit's coefficients: for points that differ little from those it was
/// fitted to (bootstrap).
ParametricFit refit_parametric(const ParametricFit& start, const std::vector<Point>& points,
                               const ParametricOptions& options);

}  // namespace atl::laws
