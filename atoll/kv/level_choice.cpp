#include "atoll/kv/level_choice.h"

#include <algorithm>

namespace atl::kv {

size_t level_in_time(std::span<const double> bytes_by_level, size_t num_left, double num_asked,
                     const Pace& pace) {
  const size_t smallest = bytes_by_level.size() - 1;
  if (pace.bytes_per_second <= 0) return std::min<size_t>(1, smallest);
  const double most = pace.bytes_per_second * pace.seconds_left - num_asked;
  for (size_t level = 0; level < smallest; ++level) {
    if (static_cast<double>(num_left) * bytes_by_level[level] <= most) return level;
  }
  return smallest;
}

bool is_worth_it(double bytes, const Pace& pace) {
  return pace.bytes_per_second <= 0 || bytes <= pace.bytes_per_second * pace.seconds_to_read;
}

}  // namespace atl::kv
