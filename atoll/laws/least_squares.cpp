#include "atoll/laws/least_squares.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "atoll/base/check.h"

namespace atl::laws {
namespace {

constexpr double kDependent = 1e-9;

/// P(|T| < t), a finite sum for whole degrees of freedom.
double student_inside(double t, size_t dof) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(dof)));
  const double cosine = std::cos(angle);
  const double half_pi = std::acos(0.0);
  const bool odd = dof % 2 == 1;
  double sum = 0;
  double term = odd ? cosine : 1;
  for (size_t k = odd ? 1 : 0; k + 2 <= dof; k += 2) {
    sum += term;
    const auto order = static_cast<double>(k);
    term *= cosine * cosine * (order + 1) / (order + 2);
  }
  return odd ? (angle + std::sin(angle) * sum) / half_pi : std::sin(angle) * sum;
}

}  // namespace

LeastSquares::LeastSquares(std::vector<double> rows, size_t num_columns)
    : num_rows_(rows.size() / num_columns),
      num_columns_(num_columns),
      rows_(std::move(rows)),
      q_(rows_),
      r_(num_columns * num_columns) {
  ATOLL_CHECK(rows_.size() == num_rows_ * num_columns_);
  full_rank_ = num_rows_ >= num_columns_;
  for (size_t j = 0; j < num_columns_; ++j) {
    const auto dot = [&](size_t a, size_t b) {
      double sum = 0;
      for (size_t i = 0; i < num_rows_; ++i) {
        sum += q_[i * num_columns_ + a] * q_[i * num_columns_ + b];
      }
      return sum;
    };
    const double length = std::sqrt(dot(j, j));
    for (int again = 0; again < 2; ++again) {  // Once more: logs of sizes are nearly constant.
      for (size_t k = 0; k < j; ++k) {
        const double share = dot(k, j);
        r_[k * num_columns_ + j] += share;
        for (size_t i = 0; i < num_rows_; ++i) {
          q_[i * num_columns_ + j] -= share * q_[i * num_columns_ + k];
        }
      }
    }
    const double left = std::sqrt(dot(j, j));
    if (!(left > kDependent * length)) full_rank_ = false;
    r_[j * num_columns_ + j] = left;
    for (size_t i = 0; i < num_rows_ && left > 0; ++i) q_[i * num_columns_ + j] /= left;
  }
}

std::vector<double> LeastSquares::solve(std::span<const double> y) const {
  ATOLL_CHECK(full_rank_ && y.size() == num_rows_);
  std::vector<double> c(num_columns_);
  for (size_t j = num_columns_; j-- > 0;) {
    for (size_t i = 0; i < num_rows_; ++i) c[j] += q_[i * num_columns_ + j] * y[i];
    for (size_t k = j + 1; k < num_columns_; ++k) c[j] -= r_[j * num_columns_ + k] * c[k];
    c[j] /= r_[j * num_columns_ + j];
  }
  return c;
}

double LeastSquares::variance_at(std::span<const double> x) const {
  std::vector<double> z(x.begin(), x.end());  // R' z = x
  double sum = 0;
  for (size_t j = 0; j < num_columns_; ++j) {
    for (size_t k = 0; k < j; ++k) z[j] -= r_[k * num_columns_ + j] * z[k];
    z[j] /= r_[j * num_columns_ + j];
    sum += z[j] * z[j];
  }
  return sum;
}

double LeastSquares::at(std::span<const double> x, std::span<const double> coefficients) const {
  return std::inner_product(x.begin(), x.end(), coefficients.begin(), 0.0);
}

double LeastSquares::leverage(size_t row) const {
  double sum = 0;
  for (size_t j = 0; j < num_columns_; ++j) {
    sum += q_[row * num_columns_ + j] * q_[row * num_columns_ + j];
  }
  return std::min(sum, 1.0);
}

LogLinearFit::LogLinearFit(LeastSquares design, std::span<const double> y)
    : design_(std::move(design)) {
  for (const double value : y) log_y_.push_back(std::log(value));
  coefficients_ = design_.solve(log_y_);
  double squares = 0;
  for (size_t i = 0; i < design_.num_rows(); ++i) {
    const double residual = log_y_[i] - design_.at(design_.row(i), coefficients_);
    squares += residual * residual;
    const double spare = 1 - design_.leverage(i);
    residuals_.push_back(spare > kDependent ? residual / std::sqrt(spare) : 0);
  }
  const double mean = std::accumulate(residuals_.begin(), residuals_.end(), 0.0) /
                      static_cast<double>(residuals_.size());
  for (double& residual : residuals_) residual -= mean;
  const size_t dof = design_.num_rows() - design_.num_columns();
  noise_ = dof > 0 ? std::sqrt(squares / static_cast<double>(dof)) : 0;
}

double LogLinearFit::predict(std::span<const double> x) const {
  return std::exp(design_.at(x, coefficients_));
}

Interval LogLinearFit::interval(std::span<const double> x, double confidence) const {
  const double middle = design_.at(x, coefficients_);
  const size_t dof = design_.num_rows() - design_.num_columns();
  const double half =
      dof == 0 ? std::numeric_limits<double>::infinity()
               : student_t(dof, confidence) * noise_ * std::sqrt(1 + design_.variance_at(x));
  return {std::exp(middle), std::exp(middle - half), std::exp(middle + half)};
}

std::vector<double> LogLinearFit::redrawn(std::span<const size_t> picks) const {
  std::vector<double> y(design_.num_rows());
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] = design_.at(design_.row(i), coefficients_) + residuals_[picks[i]];
  }
  return design_.solve(y);
}

double student_t(size_t dof, double confidence) {
  if (dof == 0) return std::numeric_limits<double>::infinity();
  double low = 0;
  double high = 1;
  while (student_inside(high, dof) < confidence) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (student_inside(middle, dof) < confidence ? low : high) = middle;
  }
  return high;
}

double quantile(std::vector<double>& values, double share) {
  ATOLL_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  if (values[below] == values[above]) return values[below];  // Both may be infinite.
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace atl::laws
