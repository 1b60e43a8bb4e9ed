#pragma once
// Products of whole numbers of 16 bits whose sums have 32: exact, so that every processor gives the
// same bits whatever its registers, and twice as quick as floating point.
//
// Shapes: M = outputs, K = inputs, T = tokens of a block.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace atl::kv {

/// Inputs of some tokens, two by two, as products read them.
class TokenBlock {
 public:
  static constexpr size_t kTokens = 32;

  /// All 0.
  explicit TokenBlock(size_t num_inputs);
  /// All inputs of `count` tokens from `first` on, at most kTokens: (K, all tokens).
  void take(std::span<const int16_t> values_KT, size_t first, size_t count);
  /// Whose inputs are not 0 of all tokens: the others cost nothing.
  std::vector<uint32_t> pairs_with_some() const;
  const int16_t* pair(size_t index) const { return pairs_.data() + index * 2 * kTokens; }
  size_t num_pairs() const { return pairs_.size() / (2 * kTokens); }

 private:
  size_t num_inputs_;
  std::vector<int16_t> pairs_;  // (K / 2, T, 2).
};

/// Which of a processor's registers multiply.
enum class Registers { kPlain, kAvx2, kAvx512 };
/// That this processor has, the best one last.
std::span<const Registers> supported_registers();

/// A matrix (M, K) of numbers above -2^15.
class WholeMatrix {
 public:
  WholeMatrix() = default;
  WholeMatrix(std::span<const int16_t> values_MK, size_t num_outputs);
  size_t num_outputs() const { return num_outputs_; }
  size_t num_inputs() const { return num_inputs_; }
  int16_t at(size_t output, size_t input) const { return tiles_[place(output, input)]; }

  /// The first so many outputs (num, T), of the first inputs, as many as the block has. Whoever
  /// calls knows that no sum is beyond 32 bits; one that is loses what is above them.
  void multiply(const TokenBlock& block, size_t num_outputs, std::vector<int32_t>& out_MT,
                Registers registers = supported_registers().back()) const;

 private:
  static constexpr size_t kTileOutputs = 12;
  size_t place(size_t output, size_t input) const {
    const size_t num_pairs = (num_inputs_ + 1) / 2;
    const size_t pair = output / kTileOutputs * num_pairs + input / 2;
    return (pair * kTileOutputs + output % kTileOutputs) * 2 + input % 2;
  }

  size_t num_outputs_ = 0;
  size_t num_inputs_ = 0;
  std::vector<int16_t> tiles_;  // (M / kTileOutputs, K / 2, kTileOutputs, 2).
};

}  // namespace atl::kv
