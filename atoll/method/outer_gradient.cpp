#include "atoll/method/outer_gradient.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/random.h"

namespace atl::method {
namespace {

/// A float's bits without the sign: ordered as magnitudes are, with NaN on top.
uint32_t magnitude_of(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFF'FFFFU; }

/// Sets the `count` elements with the smallest magnitudes to zero.
void prune_row(std::span<float> row, size_t count, std::vector<uint32_t>& magnitudes) {
  if (count == 0) return;
  magnitudes.resize(row.size());
  std::ranges::transform(row, magnitudes.begin(), magnitude_of);
  const auto last = magnitudes.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::ranges::nth_element(magnitudes, last);
  const uint32_t threshold = *last;
  const auto num_below = std::count_if(magnitudes.begin(), last,
                                       [&](uint32_t magnitude) { return magnitude < threshold; });
  auto ties = static_cast<std::ptrdiff_t>(count) - num_below;  // Of the threshold itself.
  for (float& x : row) {
    const uint32_t magnitude = magnitude_of(x);
    if (magnitude < threshold || (magnitude == threshold && ties-- > 0)) x = 0;
  }
}

/// The Euclidean length, summed in FP64 from front to back.
double length_of(std::span<const float> values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

void scale(std::span<const float> from, double factor, std::span<float> to) {
  for (size_t i = 0; i < from.size(); ++i) {
    to[i] = static_cast<float>(static_cast<double>(from[i]) * factor);
  }
}

}  // namespace

void prune_neurons(std::span<const weights::ParameterSpec> specs, double share,
                   std::span<float> delta_P) {
  ATOLL_CHECK(share >= 0 && share < 1);
  std::vector<uint32_t> scratch;
  std::vector<float> neuron;
  const auto prune = [&](const weights::ParameterSpec& spec) {
    const auto width = static_cast<size_t>(spec.shape[spec.inputs_first ? 0 : 1]);
    const size_t num_neurons = static_cast<size_t>(spec.size) / width;
    const auto count = static_cast<size_t>(share * static_cast<double>(width));
    const std::span<float> matrix =
        delta_P.subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.size));
    for (size_t n = 0; n < num_neurons; ++n) {
      if (!spec.inputs_first) {
        prune_row(matrix.subspan(n * width, width), count, scratch);
        continue;
      }
      neuron.resize(width);
      for (size_t i = 0; i < width; ++i) neuron[i] = matrix[i * num_neurons + n];
      prune_row(neuron, count, scratch);
      for (size_t i = 0; i < width; ++i) matrix[i * num_neurons + n] = neuron[i];
    }
  };
  for (const weights::ParameterSpec& spec : specs) {
    for (const weights::ParameterSpec& part : spec.parts()) {
      if (part.shape.size() == 2) prune(part);
    }
  }
}

RadialMean::RadialMean(std::span<const weights::ParameterSpec> specs) {
  for (const weights::ParameterSpec& spec : specs) {
    num_parameters_ += static_cast<size_t>(spec.size);
    if (spec.layer < 0) continue;
    for (const weights::ParameterSpec& part : spec.parts()) {
      groups_.push_back(
          {.begin = static_cast<size_t>(part.offset), .size = static_cast<size_t>(part.size)});
    }
  }
}

void RadialMean::split(std::span<float> values_PG) const {
  ATOLL_CHECK(values_PG.size() == num_values());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::span<float> group = values_PG.subspan(groups_[g].begin, groups_[g].size);
    const double length = length_of(group);
    if (length > 0) scale(group, 1 / length, group);
    values_PG[num_parameters_ + g] = static_cast<float>(length);
  }
}

void RadialMean::join(std::span<const float> mean_PG, std::span<float> delta_P) const {
  ATOLL_CHECK(mean_PG.size() == num_values() && delta_P.size() == num_parameters_);
  std::ranges::copy(mean_PG.first(num_parameters_), delta_P.begin());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::span<float> group = delta_P.subspan(groups_[g].begin, groups_[g].size);
    const double length = length_of(group);  // 0: the directions cancel.
    const double mean_length = static_cast<double>(mean_PG[num_parameters_ + g]);
    if (length > 0) scale(group, mean_length / length, group);
  }
}

bool is_dropped(double share, uint64_t seed, int64_t round, int64_t rank) {
  static const uint64_t stream = random_stream("sync.outer_dropout");
  constexpr int kRankBits = 20;
  ATOLL_CHECK(rank >= 0 && rank < int64_t{1} << kRankBits);
  const uint64_t index = (static_cast<uint64_t>(round) << kRankBits) | static_cast<uint64_t>(rank);
  return random_uniform(seed, stream, index) < share;
}

}  // namespace atl::method
