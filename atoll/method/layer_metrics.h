#pragma once
// How far the replicas' outer gradients agree, layer by layer. LibTorch-free.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/method/fragments.h"
#include "atoll/weights/config.h"

namespace atl::method {

/// Values [begin, end) of what is sent belong to this layer.
struct LayerSlice {
  std::string layer;  // "embedding", "0", "1", ..., "head" (with the final norm).
  size_t begin = 0;
  size_t end = 0;
};

/// The layers of `ranges`, packed one behind the other.
std::vector<LayerSlice> layer_slices(std::span<const weights::ParameterSpec> specs,
                                     std::span<const Range> ranges);

/// Over one slice, in FP64.
struct LayerSums {
  double own_own = 0;
  double own_mean = 0;
  double mean_mean = 0;
};
std::vector<LayerSums> measure_layers(std::span<const LayerSlice> slices,
                                      std::span<const float> own, std::span<const float> mean);

struct LayerRecord {
  std::string layer;
  double norm = 0;       // Of this replica's part, as the others decode it.
  double mean_norm = 0;  // Of the mean.
  /// Between this replica's part and the mean of the others', which follows from
  ///   mean = s * own + (1 - s) * others,   s this replica's share of the weights.
  /// With two replicas: between the two. None when either is zero, or there are no others.
  std::optional<double> cosine;

  void visit(auto&& field) {
    field("layer", layer), field("norm", norm), field("mean_norm", mean_norm);
    field("cosine", cosine);
  }
};
std::vector<LayerRecord> layer_records(std::span<const LayerSlice> slices,
                                       std::span<const LayerSums> sums, double own_share);

}  // namespace atl::method
