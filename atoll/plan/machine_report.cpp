#include "atoll/plan/machine_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "atoll/base/progress.h"

namespace atl::plan {
namespace {

/// "197 GFLOP/s", "1.23 TFLOP/s".
std::string operations_text(double flops_per_s) {
  const bool is_large = flops_per_s >= 1e12;
  return fmt::format("{:.3g} {}FLOP/s", flops_per_s / (is_large ? 1e12 : 1e9),
                     is_large ? "T" : "G");
}

std::string product_text(const ProductPeak& product) {
  std::string all;
  for (const auto& [name, flops_per_s] : product.fastest) {
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", name, operations_text(flops_per_s));
  }
  return fmt::format("{}  {:<14}  {}: {}\n", product.precision,
                     operations_text(product.flops_per_s), product.shape, all);
}

std::string network_text(const MachineReport& report) {
  const LoopbackRates& loopback = report.loopback;
  std::string text =
      fmt::format("loopback    {}/s, encrypted {}/s, there and back {:.0f} us\n",
                  format_bytes(loopback.plain_bytes_per_s),
                  format_bytes(loopback.encrypted_bytes_per_s), loopback.round_trip_s * 1e6);
  if (!report.line) {
    return text + "line        not measured: name a coordinator with --coordinator\n";
  }
  return text + fmt::format(
                    "line        up {:.4g} Mbit/s, down {:.4g} Mbit/s{}, there and back "
                    "{:.3g} ms\n",
                    report.line->up_bits_per_s / 1e6, report.line->down_bits_per_s / 1e6,
                    report.line->is_window_full ? " or more" : "", report.line->round_trip_s * 1e3);
}

std::string step_text(const MeasuredStep& step) {
  const std::string begin = fmt::format("{:<8}  {:<9}  {:>10}", step.model, step.precision,
                                        format_count(static_cast<double>(step.parameters)));
  if (!step.left_out.empty()) return fmt::format("{}  {}\n", begin, step.left_out);
  const std::string share =
      step.share_of_peak > 0 ? fmt::format("{:.0f} %", 100 * step.share_of_peak) : "-";
  return fmt::format("{}  {:>10.0f}  {:>10.1f}  {:>8}  {:>11}\n", begin, step.tokens_per_s,
                     step.step_ms, share, format_bytes(step.peak_memory_bytes));
}

}  // namespace

const ProductPeak* MachinePeak::product(const std::string& precision) const {
  const auto found = std::ranges::find(products, precision, &ProductPeak::precision);
  return found == products.end() ? nullptr : &*found;
}

void add_share(MeasuredStep& step, const MachinePeak& peak) {
  const ProductPeak* const product = peak.product(step.precision);
  if (product == nullptr || product->flops_per_s <= 0) return;
  step.share_of_peak = step.tokens_per_s * step.operations_per_token / product->flops_per_s;
}

std::string peak_text(const MachinePeak& peak, const std::string& name) {
  std::string text =
      fmt::format("device      {}{}", peak.device, name.empty() ? "" : " (" + name + ")");
  if (peak.device == "cpu") {
    text += fmt::format(", {} thread{}", peak.threads, peak.threads == 1 ? "" : "s");
  }
  text += fmt::format("\nmemory      {}, copies {}/s read and written\n",
                      format_bytes(peak.memory_bytes), format_bytes(peak.copy_bytes_per_s));
  for (const ProductPeak& product : peak.products) {
    text += &product == peak.products.data() ? "products    " : "            ";
    text += product_text(product);
  }
  return text;
}

std::string report_text(const MachineReport& report) {
  std::string text = peak_text(report.peak, report.name) + network_text(report);
  if (report.steps.empty()) return text;
  text += fmt::format("\n{:<8}  {:<9}  {:>10}  {:>10}  {:>10}  {:>8}  {:>11}\n", "training",
                      "precision", "parameters", "tokens/s", "ms a step", "of peak", "peak memory");
  for (const MeasuredStep& step : report.steps) text += step_text(step);
  return text;
}

std::string value_of_key(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;  // A longer key.
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

}  // namespace atl::plan
