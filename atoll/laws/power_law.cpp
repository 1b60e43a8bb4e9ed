#include "atoll/laws/power_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "atoll/base/check.h"

namespace atl::laws {
namespace {

constexpr size_t kJointCoefficients = 3;

std::vector<double> columns(double params, double replicas, bool joint) {
  std::vector<double> x = {1, std::log(params)};
  if (joint) x.push_back(std::log(replicas));
  return x;
}

std::map<double, std::vector<Point>> by_replicas(const std::vector<Point>& points) {
  std::map<double, std::vector<Point>> groups;
  for (const Point& point : points) groups[point.replicas].push_back(point);
  return groups;
}

size_t num_sizes(const std::vector<Point>& points) {
  std::set<double> sizes;
  for (const Point& point : points) sizes.insert(point.params);
  return sizes.size();
}

/// The reason why there is no joint law; empty: there is one.
std::string joint_refusal(const std::vector<Point>& points) {
  const auto groups = by_replicas(points);
  if (groups.empty()) return "all rows are data-parallel, and it needs replicas of 1 and more";
  if (groups.size() == 1) {
    return fmt::format(
        "all rows have {}, so nothing says how it changes with replicas; add "
        "rows of another number",
        replicas_name(groups.begin()->first));
  }
  if (num_sizes(points) < kMinSizes) {
    return fmt::format("the rows with replicas have {} size{}, and it needs {}", num_sizes(points),
                       num_sizes(points) == 1 ? "" : "s", kMinSizes);
  }
  if (points.size() <= kJointCoefficients) {
    return fmt::format(
        "{} rows have replicas, and it has {} coefficients: nothing is left to tell how well it "
        "fits; add rows",
        points.size(), kJointCoefficients);
  }
  return "";
}

double residual(const PowerLaw& law, const Point& point) {
  return std::abs(std::log(point.value / law.predict(point.params, point.replicas)));
}

/// Why there is no law once the largest size is held out; empty: there is one.
std::string held_out_refusal(const std::vector<Point>& points, const char* which) {
  const size_t sizes = num_sizes(points);
  if (sizes > kMinSizes) return "";
  return fmt::format("{} have {} size{}, and it needs {}: the largest is held out", which, sizes,
                     sizes == 1 ? "" : "s", kMinSizes + 1);
}

/// Of rows with replicas; none say nothing, as the joint law's refusal says it already.
void leave_out_largest(const std::vector<Point>& points, LeaveOneOut& result) {
  if (points.empty()) return;
  const std::string reason = held_out_refusal(points, "the rows with replicas");
  if (!reason.empty()) {
    result.refused.push_back({"leave-one-out residual", reason});
    return;
  }
  const HeldOut held = hold_out_largest(points);
  result.params = held.params;
  const PowerLaws laws = fit_power_laws(held.kept, "leave-one-out residual");
  result.refused = laws.refused;
  for (const Point& point : held.out) {
    if (const PowerLaw* law = laws.of(point.replicas)) {
      result.independent[point.replicas] = residual(*law, point);
    }
    if (laws.joint) result.joint[point.replicas] = residual(*laws.joint, point);
  }
}

void leave_out_largest_data_parallel(const std::vector<Point>& points, LeaveOneOut& result) {
  if (points.empty()) return;
  const std::string reason = held_out_refusal(points, "its rows");
  if (!reason.empty()) {
    result.refused.push_back({"leave-one-out residual of data-parallel", reason});
    return;
  }
  const HeldOut held = hold_out_largest(points);
  const std::optional<PowerLaw> law = fit_power_law(held.kept, /*joint=*/false);
  if (!law) {
    result.refused.push_back(
        {"leave-one-out residual of data-parallel", "its other sizes are too close to each other"});
    return;
  }
  result.data_parallel = {held.params, residual(*law, held.out.front())};
}

}  // namespace

double PowerLaw::A() const { return std::exp(fit_.coefficients()[0]); }

double PowerLaw::predict(double params, double replicas) const {
  return fit_.predict(columns(params, replicas, joint()));
}

Interval PowerLaw::interval(double params, double replicas, double confidence) const {
  return fit_.interval(columns(params, replicas, joint()), confidence);
}

const PowerLaw* PowerLaws::of(double replicas) const {
  const auto found = independent.find(replicas);
  return found == independent.end() ? nullptr : &found->second;
}

std::string replicas_name(double replicas) {
  if (replicas == 0) return "data-parallel";
  return fmt::format("{:.0f} replica{}", replicas, replicas == 1 ? "" : "s");
}

std::optional<PowerLaw> fit_power_law(const std::vector<Point>& points, bool joint) {
  std::vector<double> rows;
  std::vector<double> y;
  for (const Point& point : points) {
    const std::vector<double> x = columns(point.params, point.replicas, joint);
    rows.insert(rows.end(), x.begin(), x.end());
    y.push_back(point.value);
  }
  LeastSquares design(std::move(rows), joint ? kJointCoefficients : 2);
  if (!design.full_rank()) return std::nullopt;
  return PowerLaw(LogLinearFit(std::move(design), y));
}

std::vector<Point> with_replicas(const std::vector<Point>& points) {
  std::vector<Point> some;
  for (const Point& point : points) {
    if (point.replicas >= 1) some.push_back(point);
  }
  return some;
}

PowerLaws fit_power_laws(const std::vector<Point>& points, const std::string& quantity) {
  PowerLaws laws;
  for (const auto& [replicas, group] : by_replicas(points)) {
    const size_t sizes = num_sizes(group);
    std::optional<PowerLaw> law;
    if (sizes >= kMinSizes) law = fit_power_law(group, /*joint=*/false);
    if (law) {
      laws.independent.emplace(replicas, *std::move(law));
    } else {
      laws.refused.push_back({fmt::format("{} of {}", quantity, replicas_name(replicas)),
                              fmt::format("{} size{}, and a power law needs {} that differ", sizes,
                                          sizes == 1 ? "" : "s", kMinSizes)});
    }
  }
  const std::vector<Point> some = with_replicas(points);
  std::string reason = joint_refusal(some);
  if (reason.empty()) {
    laws.joint = fit_power_law(some, /*joint=*/true);
    if (!laws.joint) reason = "sizes and replicas change together, so their shares cannot be told";
  }
  if (!reason.empty()) laws.refused.push_back({fmt::format("joint law of {}", quantity), reason});
  return laws;
}

HeldOut hold_out_largest(const std::vector<Point>& points) {
  HeldOut held;
  for (const Point& point : points) held.params = std::max(held.params, point.params);
  for (const Point& point : points) {
    (point.params == held.params ? held.out : held.kept).push_back(point);
  }
  return held;
}

LeaveOneOut leave_one_out(const std::vector<Point>& points) {
  LeaveOneOut result;
  leave_out_largest(with_replicas(points), result);
  std::vector<Point> data_parallel = points;
  std::erase_if(data_parallel, [](const Point& point) { return point.replicas != 0; });
  leave_out_largest_data_parallel(data_parallel, result);
  return result;
}

std::string growth_warning(const PowerLaw& law, const std::string& name) {
  if (law.alpha() <= 0) return "";
  return fmt::format(
      "{}: the loss grows with size (alpha {:+.4g}), as where larger models had too few tokens or "
      "worse settings; what such a law predicts is worth little",
      name, law.alpha());
}

std::vector<std::string> growth_warnings(const PowerLaws& laws) {
  std::vector<std::string> warnings;
  const auto add = [&](const PowerLaw& law, const std::string& name) {
    if (std::string text = growth_warning(law, name); !text.empty()) warnings.push_back(text);
  };
  for (const auto& [replicas, law] : laws.independent) add(law, replicas_name(replicas));
  if (laws.joint) add(*laws.joint, "joint law");
  return warnings;
}

}  // namespace atl::laws
