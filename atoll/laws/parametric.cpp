#include "atoll/laws/parametric.h"

#include <fmt/format.h>
#include <nlopt.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::laws {
namespace {

constexpr int kScreenSteps = 30;    // Of every start.
constexpr int kPolished = 12;       // Starts that go on to the end.
constexpr int kPolishSteps = 1500;  // At most.
constexpr int kRefitSteps = 150;    // From a fit of nearly the same points.
constexpr double kTolerance = 1e-13;

double log_params(double params, double) { return std::log(params); }
double log_replicas(double, double replicas) { return std::log(replicas); }
double replicas_log_params(double params, double replicas) { return replicas * std::log(params); }

/// The sum of Huber losses as a function of standardised coefficients: each feature is centred and
/// scaled to deviation 1, so that one step length suits all.
class Objective {
 public:
  Objective(const Form& form, const std::vector<Point>& points, double delta)
      : form_(form), num_points_(points.size()), delta_(delta) {
    for (const Point& point : points) log_y_.push_back(std::log(point.value));
    for (const Term& term : form.terms) {
      for (const Exponent& exponent : term.exponents) add_feature(exponent, points);
    }
  }

  size_t size() const { return form_.num_coefficients(); }
  double mean_log_y() const {
    double sum = 0;
    for (const double y : log_y_) sum += y;
    return sum / static_cast<double>(num_points_);
  }

  /// In units of delta squared; `gradient` may be empty.
  double value(std::span<const double> x, std::span<double> gradient) const {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    double total = 0;
    std::array<double, kMaxTerms> values;
    for (size_t i = 0; i < num_points_; ++i) {
      double sum = 0;
      size_t place = 0;
      size_t feature = 0;
      for (size_t t = 0; t < form_.terms.size(); ++t) {
        double power = x[place++];
        for (size_t k = 0; k < form_.terms[t].exponents.size(); ++k) {
          power += x[place++] * features_[feature++][i];
        }
        values[t] = std::exp(std::min(power, kMaxPower));
        sum += values[t];
      }
      const double residual = (std::log(sum) - log_y_[i]) / delta_;
      const double size = std::abs(residual);
      total += size <= 1 ? residual * residual / 2 : size - 0.5;
      if (gradient.empty()) continue;
      const double slope = std::clamp(residual, -1.0, 1.0) / delta_ / sum;
      place = feature = 0;
      for (size_t t = 0; t < form_.terms.size(); ++t) {
        const double pull = slope * values[t];
        gradient[place++] += pull;
        for (size_t k = 0; k < form_.terms[t].exponents.size(); ++k) {
          gradient[place++] += pull * features_[feature++][i];
        }
      }
    }
    return total;
  }

  /// Coefficients as the form has them: scales, exponents.
  std::vector<double> plain(std::span<const double> x) const {
    std::vector<double> coefficients;
    size_t place = 0;
    size_t feature = 0;
    for (const Term& term : form_.terms) {
      const size_t scale = coefficients.size();
      coefficients.push_back(x[place++]);
      for (size_t k = 0; k < term.exponents.size(); ++k, ++feature) {
        const double exponent = x[place++] / deviations_[feature];
        coefficients[scale] -= exponent * means_[feature];
        coefficients.push_back(exponent);
      }
      coefficients[scale] = std::exp(coefficients[scale]);
    }
    return coefficients;
  }

  std::vector<double> standardised(std::span<const double> coefficients) const {
    std::vector<double> x;
    size_t place = 0;
    size_t feature = 0;
    for (const Term& term : form_.terms) {
      const size_t scale = x.size();
      x.push_back(std::log(coefficients[place++]));
      for (size_t k = 0; k < term.exponents.size(); ++k, ++feature) {
        const double exponent = coefficients[place++];
        x[scale] += exponent * means_[feature];
        x.push_back(exponent * deviations_[feature]);
      }
    }
    return x;
  }

  /// The random start of that number: the first term carries most of the value.
  std::vector<double> start(uint64_t seed, uint64_t number) const {
    std::vector<double> x;
    uint64_t draw = 0;
    const auto uniform = [&](double low, double high) {
      return low + (high - low) * random_uniform(seed, number, draw++);
    };
    const double middle = mean_log_y();
    for (size_t t = 0; t < form_.terms.size(); ++t) {
      x.push_back(middle + (t == 0 ? uniform(-1.5, 0.1) : uniform(-5, -0.1)));
      for (size_t k = 0; k < form_.terms[t].exponents.size(); ++k) x.push_back(uniform(-0.5, 0.5));
    }
    return x;
  }

 private:
  static constexpr size_t kMaxTerms = 4;
  static constexpr double kMaxPower = 300;  // Far outside any loss, and finite.

  void add_feature(const Exponent& exponent, const std::vector<Point>& points) {
    std::vector<double> values;
    double mean = 0;
    for (const Point& point : points) {
      values.push_back(exponent.feature(point.params, point.replicas));
      mean += values.back() / static_cast<double>(num_points_);
    }
    double variance = 0;
    for (double& value : values) {
      value -= mean;
      variance += value * value / static_cast<double>(num_points_);
    }
    const double deviation = variance > 0 ? std::sqrt(variance) : 1;
    for (double& value : values) value /= deviation;
    features_.push_back(std::move(values));
    means_.push_back(mean);
    deviations_.push_back(deviation);
  }

  const Form& form_;
  size_t num_points_;
  double delta_;
  std::vector<double> log_y_;
  std::vector<std::vector<double>> features_;  // By exponent, then point; standardised.
  std::vector<double> means_;
  std::vector<double> deviations_;
};

struct Minimum {
  std::vector<double> x;
  double value = std::numeric_limits<double>::infinity();
};

double nlopt_objective(unsigned size, const double* x, double* gradient, void* objective) {
  return static_cast<const Objective*>(objective)->value(
      {x, size}, {gradient, gradient == nullptr ? 0 : size});
}

Minimum minimise(const Objective& objective, std::vector<double> start, int max_steps) {
  const std::unique_ptr<nlopt_opt_s, decltype(&nlopt_destroy)> optimiser(
      nlopt_create(NLOPT_LD_LBFGS, static_cast<unsigned>(objective.size())), &nlopt_destroy);
  ATOLL_CHECK(optimiser != nullptr);
  nlopt_set_min_objective(optimiser.get(), nlopt_objective, const_cast<Objective*>(&objective));
  nlopt_set_maxeval(optimiser.get(), max_steps);
  nlopt_set_ftol_rel(optimiser.get(), kTolerance);
  double value = 0;
  // Its verdict does not matter: a search that ends early leaves its best point in `start`.
  nlopt_optimize(optimiser.get(), start.data(), &value);
  value = objective.value(start, {});
  return {std::move(start), std::isfinite(value) ? value : std::numeric_limits<double>::infinity()};
}

/// The Huber loss has corners in its slope, where a search may stop early: start again until
/// nothing changes.
Minimum polish(const Objective& objective, Minimum minimum) {
  for (int again = 0; again < 8; ++again) {
    Minimum next = minimise(objective, minimum.x, kPolishSteps);
    const bool done = !(next.value < minimum.value * (1 - 1e-9));
    if (next.value < minimum.value) minimum = std::move(next);
    if (done) break;
  }
  return minimum;
}

}  // namespace

size_t Form::num_coefficients() const {
  size_t num = 0;
  for (const Term& term : terms) num += 1 + term.exponents.size();
  return num;
}

const std::vector<Form>& parametric_forms() {
  static const std::vector<Form> forms = {
      {"A*N^a*M^b", {{"A", {{"a", log_params}, {"b", log_replicas}}}}},
      {"A*N^a*M^b+C", {{"A", {{"a", log_params}, {"b", log_replicas}}}, {"C", {}}}},
      {"A*N^(a+b*M)+C", {{"A", {{"a", log_params}, {"b", replicas_log_params}}}, {"C", {}}}},
      {"A*N^a+B*M^b+C", {{"A", {{"a", log_params}}}, {"B", {{"b", log_replicas}}}, {"C", {}}}}};
  return forms;
}

const Form& single_form() {
  static const Form form = {"A*N^a+C", {{"A", {{"a", log_params}}}, {"C", {}}}};
  return form;
}

std::vector<std::string> ParametricFit::names() const {
  std::vector<std::string> names;
  for (const Term& term : form_->terms) {
    names.emplace_back(term.scale);
    for (const Exponent& exponent : term.exponents) names.emplace_back(exponent.name);
  }
  return names;
}

double ParametricFit::predict(double params, double replicas) const {
  double sum = 0;
  size_t place = 0;
  for (const Term& term : form_->terms) {
    double power = std::log(coefficients_[place++]);
    for (const Exponent& exponent : term.exponents) {
      power += coefficients_[place++] * exponent.feature(params, replicas);
    }
    sum += std::exp(power);
  }
  return sum;
}

double ParametricFit::mean_residual(const std::vector<Point>& points) const {
  double sum = 0;
  for (const Point& point : points) {
    sum += std::abs(std::log(point.value / predict(point.params, point.replicas)));
  }
  return sum / static_cast<double>(points.size());
}

ParametricFit fit_parametric(const Form& form, const std::vector<Point>& points,
                             const ParametricOptions& options) {
  if (points.size() <= form.num_coefficients()) {
    throw InputError(fmt::format("{} points, and {} has {} coefficients", points.size(), form.name,
                                 form.num_coefficients()));
  }
  const Objective objective(form, points, options.huber_delta);
  std::vector<Minimum> minima;
  for (int i = 0; i < options.num_starts; ++i) {
    minima.push_back(
        minimise(objective, objective.start(options.seed, static_cast<uint64_t>(i)), kScreenSteps));
  }
  const size_t num_polished = std::min<size_t>(minima.size(), kPolished);
  std::partial_sort(minima.begin(), minima.begin() + num_polished, minima.end(),
                    [](const Minimum& a, const Minimum& b) { return a.value < b.value; });
  Minimum best;
  for (size_t i = 0; i < num_polished; ++i) {
    Minimum minimum = polish(objective, std::move(minima[i]));
    if (minimum.value < best.value) best = std::move(minimum);
  }
  if (best.x.empty()) throw InputError(fmt::format("{} fits the points nowhere", form.name));
  return {form, objective.plain(best.x), best.value};
}

ParametricFit refit_parametric(const ParametricFit& start, const std::vector<Point>& points,
                               const ParametricOptions& options) {
  const Objective objective(start.form(), points, options.huber_delta);
  const Minimum minimum =
      minimise(objective, objective.standardised(start.coefficients()), kRefitSteps);
  return {start.form(), objective.plain(minimum.x), minimum.value};
}

}  // namespace atl::laws
