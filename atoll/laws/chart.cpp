#include "atoll/laws/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "atoll/base/error.h"

namespace atl::laws {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 500;
constexpr double kLeft = 75;
constexpr double kRight = 230;  // The names' place.
constexpr double kTop = 45;
constexpr double kBottom = 60;
constexpr std::array kColours = {"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e",
                                 "#9467bd", "#8c564b", "#17becf", "#7f7f7f"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

/// One dimension: values to pixels.
class Axis {
 public:
  Axis(bool logarithmic, double from_px, double to_px)
      : log_(logarithmic), from_px_(from_px), to_px_(to_px) {}

  bool shows(double value) const { return std::isfinite(value) && (!log_ || value > 0); }
  void include(double value) {
    if (!shows(value)) return;
    low_ = std::min(low_, at(value));
    high_ = std::max(high_, at(value));
  }
  /// Room around, and never an empty range.
  void finish() {
    if (!(low_ <= high_)) low_ = high_ = 0;
    const double margin = std::max((high_ - low_) / 25, 1e-6 * std::max(1.0, std::abs(high_)));
    low_ -= margin;
    high_ += margin;
  }
  double px(double value) const {
    return from_px_ + (at(value) - low_) / (high_ - low_) * (to_px_ - from_px_);
  }
  /// Three to ten round values.
  std::vector<double> ticks() const {
    const double span = high_ - low_;
    return log_ && span > 1.2 ? log_ticks(span) : even_ticks();
  }

 private:
  double at(double value) const { return log_ ? std::log10(value) : value; }

  std::vector<double> log_ticks(double span) const {
    std::vector<double> values;
    const int every = std::max(1, static_cast<int>(span / 7));
    for (int e = static_cast<int>(std::ceil(low_)); e <= high_; ++e) {
      if (e % every == 0) values.push_back(std::pow(10, e));
      if (span < 3) values.push_back(3 * std::pow(10, e));
    }
    return values;
  }
  std::vector<double> even_ticks() const {
    const double low = log_ ? std::pow(10, low_) : low_;
    const double high = log_ ? std::pow(10, high_) : high_;
    double step = std::pow(10, std::floor(std::log10((high - low) / 4)));
    while ((high - low) / step > 7) step *= (high - low) / step > 14 ? 5 : 2;
    std::vector<double> values;
    for (double i = std::ceil(low / step); i * step <= high; ++i) values.push_back(i * step + 0.0);
    return values;
  }

  bool log_;
  double from_px_;
  double to_px_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

std::string words(double x, double y, const std::string& text, const char* anchor = "middle",
                  const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y,
                     anchor, more, escaped(text));
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart)
      : chart_(chart),
        x_(chart.log_x, kLeft, kWidth - kRight),
        y_(chart.log_y, kHeight - kBottom, kTop) {
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& p : series.line) include(p.x, p.y);
      for (const ChartPoint& p : series.points) include(p.x, p.y);
      for (const ChartBand& p : series.band) {
        include(p.x, p.low);
        include(p.x, p.high);
      }
    }
    x_.finish();
    y_.finish();
  }

  std::string svg() {
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"13\">\n"
        "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
        kWidth, kHeight);
    draw_axes();
    for (size_t i = 0; i < chart_.series.size(); ++i) draw_series(i);
    return out_ + "</svg>\n";
  }

 private:
  void include(double x, double y) {
    x_.include(x);
    y_.include(y);
  }

  void draw_line(double x1, double y1, double x2, double y2) {
    out_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", x1, y1,
        x2, y2);
  }

  void draw_axes() {
    for (const double value : x_.ticks()) {
      draw_line(x_.px(value), kTop, x_.px(value), kHeight - kBottom);
      out_ += words(x_.px(value), kHeight - kBottom + 18, fmt::format("{:.4g}", value));
    }
    for (const double value : y_.ticks()) {
      draw_line(kLeft, y_.px(value), kWidth - kRight, y_.px(value));
      out_ += words(kLeft - 8, y_.px(value) + 4, fmt::format("{:.4g}", value), "end");
    }
    const double middle = (kTop + kHeight - kBottom) / 2;
    out_ += words((kLeft + kWidth - kRight) / 2, kHeight - 15, chart_.x_label);
    out_ += words(20, middle, chart_.y_label, "middle",
                  fmt::format("transform=\"rotate(-90 20 {:.1f})\"", middle));
    out_ += words(kLeft, 25, chart_.title, "start", "font-weight=\"bold\"");
  }

  std::string corners(const std::vector<ChartPoint>& points) const {
    std::string text;
    for (const ChartPoint& p : points) {
      if (x_.shows(p.x) && y_.shows(p.y)) {
        text += fmt::format("{:.1f},{:.1f} ", x_.px(p.x), y_.px(p.y));
      }
    }
    return text;
  }

  void draw_series(size_t i) {
    const ChartSeries& series = chart_.series[i];
    const char* colour = kColours[i % kColours.size()];
    std::vector<ChartPoint> around;
    for (const ChartBand& p : series.band) around.push_back({p.x, p.low});
    for (size_t k = series.band.size(); k-- > 0;) {
      around.push_back({series.band[k].x, series.band[k].high});
    }
    if (!around.empty()) {
      out_ += fmt::format("<polygon points=\"{}\" fill=\"{}\" fill-opacity=\"0.12\"/>\n",
                          corners(around), colour);
    }
    if (!series.line.empty()) {
      out_ += fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n",
          corners(series.line), colour);
    }
    for (const ChartPoint& p : series.points) {
      if (!x_.shows(p.x) || !y_.shows(p.y)) continue;
      out_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n",
                          x_.px(p.x), y_.px(p.y), colour);
    }
    const double x = kWidth - kRight + 18;
    const double y = kTop + 14 + 20 * static_cast<double>(i);
    out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"4\" fill=\"{}\"/>\n",
                        x, y - 6, colour);
    out_ += words(x + 20, y, series.name, "start");
  }

  const Chart& chart_;
  Axis x_;
  Axis y_;
  std::string out_;
};

}  // namespace

std::string chart_svg(const Chart& chart) { return Drawing(chart).svg(); }

std::string chart_file(const Chart& chart, const std::string& name) {
  const std::string svg = chart_svg(chart);
  if (name.ends_with(".svg")) return svg;
  if (name.ends_with(".html")) {
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title></head>"
        "<body>\n{}</body></html>\n",
        escaped(chart.title), svg);
  }
  throw UsageError(fmt::format("'{}' must end in .svg or .html", name));
}

}  // namespace atl::laws
