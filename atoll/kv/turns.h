#pragma once
// Keys without their positions: a model turns each pair of a key's elements by an angle that grows
// with the position (Su et al. 2021), and what was turned alike is alike again once it is turned
// back.
//
// Shapes: P = planes, C = channels, T = tokens, R = pairs of a head that turn.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace atl::kv {

/// Cosines and sines (R, T) by which pairs (i, i + R) of each head's first 2 R elements turn.
struct TurnTable {
  std::vector<float> cos_RT, sin_RT;
};

/// Of some tokens in all layers of a model.
struct Turns {
  size_t num_tokens = 0;
  size_t head_size = 1;
  std::vector<TurnTable> tables;
  std::vector<int32_t> table_of_layer;  // -1: its keys do not turn.

  const TurnTable* of(size_t layer) const;
  /// The same of some of the tokens.
  Turns of_tokens(std::span<const uint32_t> tokens) const;
};

/// A plane's values, turned back where there is a table, less the means: bfloat16s to floats.
void straighten(std::span<const uint16_t> plane_CT, const Turns& turns, const TurnTable* table,
                std::span<const float> means_C, std::span<float> y_CT);

/// The inverse of straighten(). `y_CT` is overwritten.
void turn_again(std::span<float> y_CT, const Turns& turns, const TurnTable* table,
                std::span<const float> means_C, std::span<uint16_t> plane_CT);

}  // namespace atl::kv
