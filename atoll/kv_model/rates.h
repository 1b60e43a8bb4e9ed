#pragma once
// Which steps give how many bits: what a fit chooses levels by.
//
// Shapes: R = components of a group, of falling variance, N = tokens, C = channels of a plane.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "atoll/kv/component_coder.h"

namespace atl::kv_model {

/// Components of some tokens of several texts.
class Components {
 public:
  /// Of a text, `num_tokens` of each component.
  void add(std::vector<float> z_RN, size_t num_tokens);

  size_t num_components() const;
  double num_values() const;
  /// Of one component, rounded.
  std::vector<int16_t> numbers(size_t component, float step) const;
  /// That all take together, each with a table of its own (their entropy).
  double bits(float step) const;
  /// Behind how many components none has so large a share of numbers that are not 0.
  uint32_t num_alive(float step, double share) const;
  /// The step with the means of what is rounded to 1 and 2.
  kv::ComponentStep fitted_step(float step, size_t num_components) const;

 private:
  struct OfText {
    std::vector<float> z_RN;
    size_t num_tokens;
  };
  std::vector<OfText> texts_;
};

/// The step with which groups have so many bits per value, of all channels.
double step_for(std::span<const Components> groups, double bits);

/// Where a function of a step, which falls as it grows, has that value; halving so many times.
double step_where(const std::function<double(double)>& bits_with, double bits, int halvings);

/// The root mean square of the largest magnitudes of a plane's tokens: (C, N) bits of bfloat16s.
double typical_scale(std::span<const uint16_t> plane_CN, size_t num_channels);

}  // namespace atl::kv_model
