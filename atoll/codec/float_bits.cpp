#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

/// As bits: those of infinities and NaN are above all others.
ATOLL_CLONES bool all_up_to(uint32_t largest, const float* values, size_t count) {
  uint32_t any_bad = 0;  // No branches: the compiler vectorises it.
  for (size_t i = 0; i < count; ++i) {
    any_bad |= static_cast<uint32_t>(magnitude_bits(values[i]) > largest);
  }
  return any_bad == 0;
}

}  // namespace

size_t first_beyond(float largest, std::span<const float> values) {
  const uint32_t bits = bits_of(largest);
  if (all_up_to(bits, values.data(), values.size())) return ~size_t{0};
  size_t index = 0;
  while (magnitude_bits(values[index]) <= bits) ++index;
  return index;
}

}  // namespace atl::codec
