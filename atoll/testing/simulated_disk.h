#pragma once
// For tests: what outlives a process of a simulated island.
#include <map>
#include <vector>

#include "atoll/testing/simulated_plan.h"

namespace atl::collective {

/// The fragments' values, and their newest rounds.
struct Checkpoint {
  std::vector<Theta> theta;
  std::vector<int64_t> applied;
};

/// By step.
using Disk = std::map<int64_t, Checkpoint>;

inline Digest digest_of(const Checkpoint& checkpoint) {
  Bytes all;
  for (const Theta& theta : checkpoint.theta) {
    const Digest digest = digest_of(theta);
    all.insert(all.end(), digest.begin(), digest.end());
  }
  return sha256(all);
}

/// Keeps the first checkpoint and the newest few.
inline void keep(Disk& disk, int64_t step, Checkpoint checkpoint) {
  disk[step] = std::move(checkpoint);
  while (disk.size() > 4) disk.erase(std::next(disk.begin()));
}

}  // namespace atl::collective
