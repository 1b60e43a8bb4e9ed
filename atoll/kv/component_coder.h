#pragma once
// Components of keys and values, which a transform has made alike in what their errors cost: all
// are rounded to whole numbers of one step, and each is entropy-coded with a table of its own.
// Components that vary little beside the step cost nearly nothing: bits go where the variance is
// (reverse water-filling; Cover and Thomas, section 10.3.3).
//
// Shapes: T = tokens, R = components.
#include <array>
#include <cstdint>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {

struct ComponentStep {
  float step = 1;
  /// What is read back of the numbers 1 and 2 (and -1 and -2), in steps: the mean of what was
  /// rounded to them. Larger ones are read back as they are.
  std::array<float, 2> means = {1, 2};
};

/// |z| / step is rounded up from so much over a whole number on: zeros are cheap.
inline constexpr float kRoundedUpFrom = 0.6F;

/// Appends them to `out`. `tables_R`: that whoever decodes has too. Throws InputError where a value
/// is not finite, or beyond 32,000 steps.
void encode_components(std::span<const float> z_TR, const ComponentStep& step,
                       std::span<const ValueTable> tables_R, Bytes& out);

/// Throws InputError where that is not what `in` holds.
void decode_components(ByteReader& in, const ComponentStep& step,
                       std::span<const ValueTable> tables_R, std::span<float> z_TR);

/// The whole number that a component's value becomes.
int16_t component_number(float value, float step);

}  // namespace atl::kv
