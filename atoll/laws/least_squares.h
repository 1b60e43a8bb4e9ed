#pragma once
// Ordinary least squares for a handful of columns, and laws that are lines in logarithms:
// y = exp(c . x). One factorisation serves many right-hand sides (bootstrap). Immutable.
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace atl::laws {

/// A value with the range that it lies in with the stated confidence.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// X = QR of an n x p matrix, row by row.
class LeastSquares {
 public:
  LeastSquares(std::vector<double> rows, size_t num_columns);

  /// No column is a sum of others (to 1e-9 of its length), and there are as many rows as columns.
  bool full_rank() const { return full_rank_; }
  size_t num_rows() const { return num_rows_; }
  size_t num_columns() const { return num_columns_; }
  /// The coefficients of the least squares fit to `y`. Needs full_rank().
  std::vector<double> solve(std::span<const double> y) const;
  /// x' (X'X)^-1 x: how uncertain a prediction at x is, in units of the noise's variance.
  double variance_at(std::span<const double> x) const;
  double at(std::span<const double> x, std::span<const double> coefficients) const;
  /// The row's influence on its own fitted value, 0 to 1.
  double leverage(size_t row) const;
  std::span<const double> row(size_t i) const {
    return {rows_.data() + i * num_columns_, num_columns_};
  }

 private:
  size_t num_rows_;
  size_t num_columns_;
  std::vector<double> rows_;  // X.
  std::vector<double> q_;     // As rows_.
  std::vector<double> r_;     // p x p, upper triangle.
  bool full_rank_ = true;
};

/// ln y = c . x, fitted to positive y.
class LogLinearFit {
 public:
  /// `y` has one positive value for each row of `design`, which has full rank.
  LogLinearFit(LeastSquares design, std::span<const double> y);

  const std::vector<double>& coefficients() const { return coefficients_; }
  double predict(std::span<const double> x) const;
  /// Where a new measurement at x falls with that probability, if the law holds there and the
  /// noise is normal. Degenerate (as wide as it can be said: infinite) without spare rows.
  Interval interval(std::span<const double> x, double confidence) const;
  /// The coefficients after redrawing the residuals: `pick(i)` names the row whose residual row i
  /// gets. Residuals are widened by what the fit took from them.
  std::vector<double> redrawn(std::span<const size_t> picks) const;
  const LeastSquares& design() const { return design_; }

 private:
  LeastSquares design_;
  std::vector<double> log_y_;
  std::vector<double> coefficients_;
  std::vector<double> residuals_;  // Widened, centred.
  double noise_ = 0;               // Standard deviation of the residuals, in logarithms.
};

/// The value that a Student t variable of `dof` degrees of freedom exceeds in size with
/// probability 1 - confidence. Infinite for dof 0.
double student_t(size_t dof, double confidence);

/// The `share`-quantile of the values, linearly between neighbours. Sorts them.
double quantile(std::vector<double>& values, double share);

}  // namespace atl::laws
