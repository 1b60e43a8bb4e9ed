#include "atoll/method/layer_metrics.h"

#include <algorithm>
#include <cmath>

namespace atl::method {
namespace {

std::string layer_name(const weights::ParameterSpec& spec) {
  if (spec.layer >= 0) return std::to_string(spec.layer);
  return spec.offset == 0 ? "embedding" : "head";
}

}  // namespace

std::vector<LayerSlice> layer_slices(std::span<const weights::ParameterSpec> specs,
                                     std::span<const Range> ranges) {
  std::vector<LayerSlice> slices;
  size_t packed = 0;
  for (const Range& range : ranges) {
    for (const weights::ParameterSpec& spec : specs) {
      const int64_t begin = std::max(range.begin, spec.offset);
      const int64_t end = std::min(range.end, spec.offset + spec.size);
      if (begin >= end) continue;
      const auto size = static_cast<size_t>(end - begin);
      const std::string layer = layer_name(spec);
      if (slices.empty() || slices.back().layer != layer) {
        slices.push_back({.layer = layer, .begin = packed, .end = packed});
      }
      packed += size;
      slices.back().end = packed;
    }
  }
  return slices;
}

std::vector<LayerSums> measure_layers(std::span<const LayerSlice> slices,
                                      std::span<const float> own, std::span<const float> mean) {
  std::vector<LayerSums> out;
  for (const LayerSlice& slice : slices) {
    LayerSums sums;
    for (size_t i = slice.begin; i < slice.end; ++i) {
      const double a = own[i];
      const double b = mean[i];
      sums.own_own += a * a;
      sums.own_mean += a * b;
      sums.mean_mean += b * b;
    }
    out.push_back(sums);
  }
  return out;
}

std::vector<LayerRecord> layer_records(std::span<const LayerSlice> slices,
                                       std::span<const LayerSums> sums, double own_share) {
  std::vector<LayerRecord> out;
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto& [own_own, own_mean, mean_mean] = sums[i];
    LayerRecord record{
        .layer = slices[i].layer, .norm = std::sqrt(own_own), .mean_norm = std::sqrt(mean_mean)};
    // Of (1 - s) * others, whose length cancels in the cosine.
    const double own_others = own_mean - own_share * own_own;
    const double others_others =
        mean_mean - 2 * own_share * own_mean + own_share * own_share * own_own;
    if (own_share < 1 && own_own > 0 && others_others > 0) {
      record.cosine = std::clamp(own_others / (record.norm * std::sqrt(others_others)), -1.0, 1.0);
    }
    out.push_back(std::move(record));
  }
  return out;
}

}  // namespace atl::method
