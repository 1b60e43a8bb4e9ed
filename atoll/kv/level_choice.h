#pragma once
// At which level a prefix that somebody waits for travels: CacheGen's rule (Liu et al. 2024) with
// what time was left over carried on: chunk by chunk, the best one at which all that is left comes
// in the time that is left.
#include <cstddef>
#include <limits>
#include <span>

namespace atl::kv {

struct Pace {
  double bytes_per_second = 0;  // As measured; 0: not yet known.
  double seconds_left = 0;
  /// What a chunk takes who reads its tokens anew.
  double seconds_to_read = std::numeric_limits<double>::infinity();
};

/// Of levels from the exact one to the smallest, by what a chunk of each takes, for `num_left`
/// chunks behind `num_asked` bytes that are under way. Where no level is in time, the smallest. As
/// long as the speed is not known, the best of those that are not exact.
size_t level_in_time(std::span<const double> bytes_by_level, size_t num_left, double num_asked,
                     const Pace& pace);

/// Whether a chunk of so many bytes comes sooner than it is read anew.
bool is_worth_it(double bytes, const Pace& pace);

}  // namespace atl::kv
