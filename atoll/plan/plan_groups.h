#pragma once
// Which islands train together. All take equal parts of a batch and wait for the slowest computer
// and the slowest line. So of all groups of a number of islands only some can be the best: those
// with the best lines among all that compute at least as fast as a certain one. Pure.
#include <cstddef>
#include <vector>

namespace atl::plan {

/// An island that can take part.
struct RankedIsland {
  size_t place = 0;
  double flops_per_s = 0;
  double line_s = 0;  // For an exchange over its line alone.
};

/// Groups of so many islands: for each speed the `count` with the best lines of all that are as
/// fast. Each of its own, places rising; the fastest group first. Of islands that are alike the
/// first come first.
std::vector<std::vector<size_t>> best_groups(std::vector<RankedIsland> islands, size_t count);

}  // namespace atl::plan
