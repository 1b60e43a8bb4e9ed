#pragma once
// For tests: what no placement of a model's layers exceeds.
#include <algorithm>
#include <vector>

#include "atoll/chain/placement.h"

namespace atl::chain {

/// Tokens per second. At a bottleneck of T each of L layers has T; a host gives no more than its
/// speed in all, and none of its layers needs more than T of it.
inline double bottleneck_bound(const std::vector<Host>& hosts, int32_t num_layers) {
  double low = 0;
  double high = 0;
  for (const Host& host : hosts) high += host.speed;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    double given = 0;
    for (const Host& host : hosts) {
      given += std::min(host.speed, middle * std::min(host.max_layers, num_layers));
    }
    (given >= middle * num_layers ? low : high) = middle;
  }
  return low;
}

}  // namespace atl::chain
