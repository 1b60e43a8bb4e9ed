#pragma once
// What may be done to outer gradients on their way: pruning before the mean, another mean than the
// arithmetic one, replicas left out. Pure functions on host memory, LibTorch-free; the same bits on
// every machine. Shape suffixes: P = all parameters, G = the tensors inside the layers.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::method {

/// Sign pruning (DiLoCo, arXiv 2311.08105, table 6, after TIES, arXiv 2306.01708): in each neuron,
/// a row of a matrix, the `share` in [0, 1) of elements with the smallest magnitudes becomes zero,
/// rounded down; of equal ones the first. Vectors stay as they are.
void prune_neurons(std::span<const weights::ParameterSpec> specs, double share,
                   std::span<float> delta_P);

/// Radial-directional averaging (Decoupled DiLoCo, arXiv 2604.21428): the mean keeps the length of
/// what it averages, however many replicas there are. For each tensor v inside a layer
///   RDA = (sum w |v| / sum w) * unit(sum w unit(v))
/// The embedding, the head and the last norm are averaged directly. Two means are needed, of
/// lengths and of directions; both travel in one exchange, the lengths behind the directions.
class RadialMean {
 public:
  explicit RadialMean(std::span<const weights::ParameterSpec> specs);
  /// P + G.
  size_t num_values() const { return num_parameters_ + groups_.size(); }
  /// In place: the first P elements are an outer gradient and become directions (a zero tensor
  /// stays zero); the last G become lengths.
  void split(std::span<float> values_PG) const;
  /// The radial-directional mean from the arithmetic mean of what split() made.
  void join(std::span<const float> mean_PG, std::span<float> delta_P) const;

 private:
  struct Group {
    size_t begin;
    size_t size;
  };
  size_t num_parameters_ = 0;
  std::vector<Group> groups_;
};

/// Whether a replica's outer gradient of a round is left out: true for the given share of (round,
/// rank), decided by the seed alone.
bool is_dropped(double share, uint64_t seed, int64_t round, int64_t rank);

}  // namespace atl::method
