#pragma once
// Keys, or values, of some layers as components that a linear transform makes of them: the
// directions in which they vary (Karhunen-Loeve) once each direction is as long as an error in it
// is dear. Both ways go through whole numbers, so that what is read back is the same on every
// machine.
//
// Shapes: M = channels of all layers of the group, one layer behind the other, R = components, T =
// tokens.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/kv/component_coder.h"
#include "atoll/kv/whole_products.h"

namespace atl::kv {

/// The rounding of a group's components at one level.
struct GroupLevel {
  uint32_t num_components = 0;  // The first ones; all others are as good as 0.
  ComponentStep step;           // Its means are 1 and 2 at most.
  std::vector<ValueTable> tables_R;
};

class GroupTransform {
 public:
  /// What a number of components is at most, so that no sum goes beyond 32 bits.
  static constexpr int kMostNumber = 2000;

  GroupTransform() = default;
  /// z = forward y, and y = inverse z as nearly as so many components say. `largest_M`: values of
  /// which none is beyond these can be encoded.
  GroupTransform(std::span<const float> forward_RM, std::span<const float> inverse_MR,
                 std::span<const float> largest_M);
  size_t num_channels() const { return forward_.num_inputs(); }
  size_t num_components() const { return forward_.num_outputs(); }

  /// Appends y to `out`, in numbers of that level. What cannot be: `refused_T` gets 1 there, and
  /// what is appended is of no use then.
  void encode(std::span<const float> y_MT, const GroupLevel& level, Bytes& out,
              std::vector<uint8_t>& refused_T) const;
  /// Throws InputError where `in` is no such encoding.
  void decode(ByteReader& in, const GroupLevel& level, std::span<float> y_MT) const;
  /// The components (R, T) before they are rounded, for those who fit levels. As encode().
  std::vector<float> components(std::span<const float> y_MT, size_t num_components,
                                std::vector<uint8_t>& refused_T) const;

  void write(ByteWriter& writer) const;
  /// Throws InputError where it is none of so many channels.
  static GroupTransform read(ByteReader& in, size_t num_channels);

 private:
  /// y in units; 1 to what has none.
  std::vector<int16_t> inputs(std::span<const float> y_MT, std::vector<uint8_t>& refused_T) const;
  /// Calls take(sums_RT, first, count) for each block of tokens: sums of products, kTokens apart.
  template <typename Take>
  void multiply_blocks(std::span<const float> y_MT, size_t num_components,
                       std::vector<uint8_t>& refused_T, const Take& take) const;

  WholeMatrix forward_;                 // (R, M).
  WholeMatrix inverse_;                 // (M, R).
  std::vector<float> input_units_M_;    // Of y.
  std::vector<float> forward_units_R_;  // Of z, for a sum of products.
  std::vector<float> inverse_units_M_;  // Of y, for a sum of products with z in kFractions.
};

/// Appends floats, or reads so many; throws InputError where one is not finite.
void put_floats(ByteWriter& writer, std::span<const float> values);
std::vector<float> get_floats(ByteReader& in, size_t count);

}  // namespace atl::kv
