#include "atoll/collective/segments.h"

#include <algorithm>

#include "atoll/swarm/rules.h"

namespace atl::collective {

size_t segment_size(size_t count, Topology topology) {
  // Whole chunks of every codec, and where there are enough values 32 segments to share out.
  constexpr size_t kLeast = size_t{1} << 12;
  constexpr size_t kWanted = 32;
  if (topology == Topology::kGather) return kSegmentValues;
  const size_t even = count / kWanted / kLeast * kLeast;
  return std::clamp(even, kLeast, kSegmentValues);
}

size_t chunk_size(double bytes_per_second) {
  return static_cast<size_t>(std::clamp(bytes_per_second / 4, static_cast<double>(kChunkBytes),
                                        static_cast<double>(kMaxChunkBytes)));
}

std::vector<int64_t> equal_shares(size_t count, Topology topology, int64_t num_members) {
  const auto size = static_cast<int64_t>(segment_size(count, topology));
  return swarm::equal_shares(swarm::num_segments(static_cast<int64_t>(count), size), num_members);
}

}  // namespace atl::collective
