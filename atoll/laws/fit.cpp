#include "atoll/laws/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::laws {
namespace {

/// Streams of the bootstrap's random numbers, one for each law that is redrawn.
enum Stream : uint64_t { kJointStream = 1'000'000'000, kFormStream };

std::vector<size_t> picks(const FitOptions& options, uint64_t stream, int sample, size_t num) {
  std::vector<size_t> rows(num);
  for (size_t i = 0; i < num; ++i) {
    const double uniform =
        random_uniform(options.parametric.seed, stream, static_cast<uint64_t>(sample) * num + i);
    rows[i] = static_cast<size_t>(uniform * static_cast<double>(num));
  }
  return rows;
}

/// `samples[i]` holds all redrawn values of coefficient i.
Intervals intervals_of(std::vector<std::vector<double>>& samples, double confidence) {
  Intervals intervals;
  for (std::vector<double>& values : samples) {
    const double low = quantile(values, (1 - confidence) / 2);
    intervals.emplace_back(low, quantile(values, (1 + confidence) / 2));
  }
  return intervals;
}

Intervals bootstrap_law(const PowerLaw& law, uint64_t stream, const FitOptions& options) {
  std::vector<std::vector<double>> samples(law.fit().coefficients().size());
  for (int sample = 0; sample < options.bootstrap; ++sample) {
    const auto c = law.fit().redrawn(picks(options, stream, sample, law.fit().design().num_rows()));
    samples[0].push_back(std::exp(c[0]));
    for (size_t i = 1; i < c.size(); ++i) samples[i].push_back(c[i]);
  }
  return intervals_of(samples, options.confidence);
}

/// As above for a form, each sample searched from the fit's own coefficients.
Intervals bootstrap_form(const ParametricFit& fit, const std::vector<Point>& points,
                         uint64_t stream, const FitOptions& options) {
  std::vector<double> residuals;
  double mean = 0;
  for (const Point& point : points) {
    residuals.push_back(std::log(point.value / fit.predict(point.params, point.replicas)));
    mean += residuals.back() / static_cast<double>(points.size());
  }
  const auto num = static_cast<double>(points.size());
  const double wider = std::sqrt(num / (num - static_cast<double>(fit.coefficients().size())));
  std::vector<std::vector<double>> samples(fit.coefficients().size());
  for (int sample = 0; sample < options.bootstrap; ++sample) {
    const auto rows = picks(options, stream, sample, points.size());
    std::vector<Point> redrawn = points;
    for (size_t i = 0; i < redrawn.size(); ++i) {
      redrawn[i].value = fit.predict(points[i].params, points[i].replicas) *
                         std::exp(wider * (residuals[rows[i]] - mean));
    }
    const ParametricFit again = refit_parametric(fit, redrawn, options.parametric);
    for (size_t i = 0; i < samples.size(); ++i) samples[i].push_back(again.coefficients()[i]);
  }
  return intervals_of(samples, options.confidence);
}

/// Why no form can be fitted to these rows; empty: it depends on its coefficients.
std::string forms_refusal(const std::vector<Point>& kept) {
  std::set<double> replicas;
  std::set<double> sizes;
  for (const Point& point : kept) {
    replicas.insert(point.replicas);
    sizes.insert(point.params);
  }
  if (replicas.size() < 2) {
    return "they need rows of two numbers of replicas, 1 or more, also without the largest size";
  }
  if (sizes.size() < kMinSizes) {
    return fmt::format(
        "they need {} sizes of rows with replicas beside the largest, which is held "
        "out; there are {}",
        kMinSizes, sizes.size());
  }
  return "";
}

std::vector<HeldOutForm> fit_forms(const std::vector<Point>& points, const FitOptions& options,
                                   std::vector<Refusal>& refused) {
  const HeldOut held = hold_out_largest(with_replicas(points));
  std::vector<HeldOutForm> forms;
  if (const std::string reason = forms_refusal(held.kept); !reason.empty()) {
    refused.push_back({"the forms", reason});
    return forms;
  }
  for (const Form& form : parametric_forms()) {
    if (held.kept.size() <= form.num_coefficients()) {
      refused.push_back({fmt::format("form {}", form.name),
                         fmt::format("{} rows without the largest size, and {} coefficients",
                                     held.kept.size(), form.num_coefficients())});
      continue;
    }
    ParametricFit fit = fit_parametric(form, held.kept, options.parametric);
    const double residual = fit.mean_residual(held.out);
    Intervals intervals;
    if (options.bootstrap > 0) {
      intervals = bootstrap_form(fit, held.kept, kFormStream + forms.size(), options);
    }
    forms.push_back({std::move(fit), residual, std::move(intervals)});
  }
  return forms;
}

std::optional<double> flops_of(const Run& run) {
  if (run.flops) return run.flops;
  if (run.tokens) return 6 * run.params * *run.tokens;
  return std::nullopt;
}

std::map<double, ComputeLine> compute_lines(const std::vector<Run>& runs) {
  std::map<double, std::pair<std::vector<double>, std::vector<double>>> groups;
  for (const Run& run : best_runs(runs)) {
    if (const auto flops = flops_of(run)) {
      auto& [rows, losses] = groups[run.replicas];
      rows.insert(rows.end(), {1, std::log(*flops)});
      losses.push_back(run.loss);
    }
  }
  std::map<double, ComputeLine> lines;
  for (auto& [replicas, group] : groups) {
    const LeastSquares design(std::move(group.first), 2);
    if (!design.full_rank() || design.num_rows() < kMinSizes) continue;
    const auto c = design.solve(group.second);
    lines[replicas] = {c[0], c[1]};
  }
  return lines;
}

void append(std::vector<Refusal>& to, const std::vector<Refusal>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

std::vector<Point> loss_points(const std::vector<Run>& runs) {
  std::vector<Point> points;
  for (const Run& run : best_runs(runs)) points.push_back({run.params, run.replicas, run.loss});
  return points;
}

void require_law(const PowerLaws& laws) {
  if (!laws.independent.empty() || laws.joint) return;
  const Refusal& first = laws.refused.front();
  std::string text = fmt::format("too few points: {}: {}", first.what, first.reason);
  // Of several numbers of replicas there might have been a law of all.
  const Refusal& last = laws.refused.back();
  if (laws.refused.size() > 2) text += fmt::format("; {}: {}", last.what, last.reason);
  throw InputError(text);
}

Intervals LawIntervals::of(double replicas) const {
  const auto found = independent.find(replicas);
  return found == independent.end() ? Intervals{} : found->second;
}

std::string with_interval(double value, const Intervals& intervals, size_t i) {
  if (i >= intervals.size()) return fmt::format("{:.5g}", value);
  return fmt::format("{:.5g} [{:.4g}, {:.4g}]", value, intervals[i].first, intervals[i].second);
}

FitReport fit_runs(const std::vector<Run>& runs, const FitOptions& options) {
  FitReport report;
  report.points = loss_points(runs);
  report.loss = fit_power_laws(report.points, "loss");
  require_law(report.loss);
  const auto [smallest, largest] = std::ranges::minmax(report.points, {}, &Point::params);
  report.smallest = smallest.params;
  report.largest = largest.params;
  report.leave_one_out = leave_one_out(report.points);
  append(report.refused, report.loss.refused);
  append(report.refused, report.leave_one_out.refused);
  report.parametric = fit_forms(report.points, options, report.refused);
  if (options.bootstrap > 0) {
    for (const auto& [replicas, law] : report.loss.independent) {
      report.loss_intervals.independent[replicas] =
          bootstrap_law(law, static_cast<uint64_t>(replicas), options);
    }
    if (report.loss.joint) {
      report.loss_intervals.joint = bootstrap_law(*report.loss.joint, kJointStream, options);
    }
  }
  report.compute = compute_lines(runs);
  report.batch_optima = quadratic_optima(runs, &Run::batch, "batch");
  report.lr_optima = quadratic_optima(runs, &Run::lr, "lr");
  for (auto [optima, laws, name] : {std::tuple{&report.batch_optima, &report.batch, "batch"},
                                    std::tuple{&report.lr_optima, &report.lr, "lr"}}) {
    append(report.refused, optima->refused);
    if (optima->points.empty()) continue;
    *laws = fit_power_laws(optima->points, name);
    append(report.refused, laws->refused);
  }
  report.outer_lr = outer_rates(runs);
  return report;
}

}  // namespace atl::laws
