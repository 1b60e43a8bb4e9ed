#include "atoll/laws/fit_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace atl::laws {

Chart fit_chart(const FitReport& report, double confidence) {
  Chart chart{.title = fmt::format("Loss over size, {:g} % band for a new run", 100 * confidence),
              .x_label = "parameters",
              .y_label = "loss (nats per token)",
              .log_y = true,
              .series = {}};
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const Point& point : report.points) {
    low = std::min(low, point.params);
    high = std::max(high, point.params);
  }
  constexpr int kCorners = 60;
  std::map<double, ChartSeries> series;
  for (const Point& point : report.points) {
    series[point.replicas].points.push_back({point.params, point.value});
  }
  for (const auto& [replicas, law] : report.loss.independent) {
    for (int i = 0; i <= kCorners; ++i) {  // Twice the largest size: where one looks.
      const double params = low * std::pow(2 * high / low, static_cast<double>(i) / kCorners);
      const auto [value, from, to] = law.interval(params, replicas, confidence);
      series[replicas].line.push_back({params, value});
      series[replicas].band.push_back({params, from, to});
    }
  }
  for (auto& [replicas, one] : series) {
    const PowerLaw* law = report.loss.of(replicas);
    one.name = replicas_name(replicas);
    if (law != nullptr) one.name += fmt::format(": {:.2f} N^{:.4f}", law->A(), law->alpha());
    chart.series.push_back(std::move(one));
  }
  return chart;
}

}  // namespace atl::laws
