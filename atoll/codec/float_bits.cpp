#include "atoll/codec/float_bits.h"

namespace atl::codec {

ATOLL_CLONES bool all_finite(const float* values, size_t count) {
  uint32_t any_bad = 0;
  for (size_t i = 0; i < count; ++i) any_bad |= static_cast<uint32_t>(!is_finite(values[i]));
  return any_bad == 0;
}

size_t first_not_finite(std::span<const float> values) {
  if (all_finite(values.data(), values.size())) return ~size_t{0};
  size_t index = 0;
  while (is_finite(values[index])) ++index;
  return index;
}

}  // namespace atl::codec
