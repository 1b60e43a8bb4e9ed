#include "atoll/laws/optima.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace atl::laws {
namespace {

using Sweep = std::map<double, double>;  // A setting's value -> the smallest loss with it.

/// log2 of the minimiser, or why there is none.
std::optional<double> vertex(const Sweep& sweep, std::string& reason) {
  if (sweep.size() < 3) {
    reason = fmt::format("{} value{}, and a parabola needs 3", sweep.size(),
                         sweep.size() == 1 ? "" : "s");
    return std::nullopt;
  }
  const auto best = std::min_element(sweep.begin(), sweep.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  if (best == sweep.begin() || best == std::prev(sweep.end())) {
    reason = fmt::format("the best of its values, {:g}, is the {}; extend the sweep beyond it",
                         best->first, best == sweep.begin() ? "smallest" : "largest");
    return std::nullopt;
  }
  const double middle = std::log2(best->first);
  std::vector<double> rows;
  std::vector<double> losses;
  for (const auto& [value, loss] : sweep) {
    const double x = std::log2(value) - middle;
    rows.insert(rows.end(), {1, x, x * x});
    losses.push_back(loss);
  }
  const LeastSquares design(std::move(rows), 3);
  const std::vector<double> c = design.full_rank() ? design.solve(losses) : std::vector<double>(3);
  const double place = middle - c[1] / (2 * c[2]);
  if (!(c[2] > 0) || place < std::log2(sweep.begin()->first) ||
      place > std::log2(std::prev(sweep.end())->first)) {
    reason = "its losses do not lie on a parabola that opens upwards within the sweep";
    return std::nullopt;
  }
  return place;
}

}  // namespace

Optima quadratic_optima(const std::vector<Run>& runs, Setting setting, const std::string& name) {
  std::map<std::pair<double, double>, Sweep> sweeps;
  for (const Run& run : runs) {
    if (!(run.*setting)) continue;
    Sweep& sweep = sweeps[{run.replicas, run.params}];
    const auto [place, is_new] = sweep.emplace(*(run.*setting), run.loss);
    if (!is_new) place->second = std::min(place->second, run.loss);
  }
  Optima optima;
  for (const auto& [key, sweep] : sweeps) {
    const auto [replicas, params] = key;
    std::string reason;
    if (const auto place = vertex(sweep, reason)) {
      optima.points.push_back({params, replicas, std::exp2(*place)});
    } else {
      optima.refused.push_back({fmt::format("best {} of {} at {} params", name,
                                            replicas_name(replicas), number_text(params)),
                                reason});
    }
  }
  return optima;
}

std::map<double, OuterRate> outer_rates(const std::vector<Run>& runs) {
  std::map<double, std::vector<double>> best;
  for (const Run& run : best_runs(runs)) {
    if (run.outer_lr && run.replicas >= 1) best[run.replicas].push_back(*run.outer_lr);
  }
  std::map<double, OuterRate> rates;
  for (const auto& [replicas, values] : best) {
    double sum = 0;
    for (const double value : values) sum += value;
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    rates[replicas] = {sum / static_cast<double>(values.size()), *low, *high};
  }
  return rates;
}

}  // namespace atl::laws
