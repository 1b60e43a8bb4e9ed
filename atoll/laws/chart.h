#pragma once
// A self-contained picture: curves, points and bands over two axes, as SVG. Pure.
#include <string>
#include <vector>

namespace atl::laws {

struct ChartPoint {
  double x = 0;
  double y = 0;
};
struct ChartBand {
  double x = 0;
  double low = 0;
  double high = 0;
};
struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> line;
  std::vector<ChartPoint> points;
  std::vector<ChartBand> band;
};
struct Chart {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = true;
  bool log_y = false;
  std::vector<ChartSeries> series;
};

/// Values that an axis cannot show (not finite; not positive on a logarithmic one) are left out.
std::string chart_svg(const Chart& chart);

/// For a file of that name: SVG, or a page with it. Throws UsageError when it ends neither in .svg
/// nor in .html.
std::string chart_file(const Chart& chart, const std::string& name);

}  // namespace atl::laws
