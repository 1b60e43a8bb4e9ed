#pragma once
// How the values of a round are cut: into segments, each encoded on its own, whole ones of which
// are the members' shares; and what is encoded into chunks, each a part on its way. Pure.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "atoll/collective/averager.h"

namespace atl::collective {

/// Payload of one Part, but for the last of a segment: many rounds interleave, and on a line of 20
/// kbit/s something still arrives every 30 seconds.
constexpr size_t kChunkBytes = size_t{64} << 10;
/// The same on a line that is known to be fast, where each part costs more time than its bytes.
constexpr size_t kMaxChunkBytes = size_t{256} << 10;

/// What a line carries in a quarter of a second, within those two. 0: nothing is known of it.
size_t chunk_size(double bytes_per_second);

/// Largest segment: 1 MiB of floats.
constexpr size_t kSegmentValues = size_t{1} << 18;

/// How many of `count` values each segment has, but for the last. With kGather the most there can
/// be; with kScatter fewer where values are few, for shares are whole segments.
size_t segment_size(size_t count, Topology topology);
/// Of those segments, for so many members.
std::vector<int64_t> equal_shares(size_t count, Topology topology, int64_t num_members);

}  // namespace atl::collective
