#include "atoll/collective/incoming_blob.h"

#include <fmt/format.h>

#include <algorithm>

namespace atl::collective {

bool IncomingBlob::begin(Attempt attempt) {
  if (received_ > 0 && attempt != attempt_) {
    if (attempt < attempt_ || done_) return false;
    received_ = 0;
  }
  attempt_ = attempt;
  return true;
}

Result<void> IncomingBlob::take(const swarm::Part& part, std::span<const std::byte> data,
                                const Expected& expected, BlobArena& arena) {
  if (part.total == 0 || part.total > expected.most) {
    return failure(fmt::format("island '{}' sent a part of {} bytes, where {} values have 1 to {}",
                               expected.sender, part.total, expected.num_values, expected.most));
  }
  if (done_ || part.offset < received_) {
    return failure(fmt::format("island '{}' sent bytes {} to {} of segment {} twice",
                               expected.sender, part.offset, part.offset + data.size(),
                               part.segment));
  }
  const std::span<std::byte> slot = slot_.bytes;
  const uint64_t total = slot.empty() ? part.total : slot.size();
  if (part.total != total || part.offset > received_ || data.empty() ||
      data.size() > total - received_) {
    return failure(fmt::format(
        "island '{}' sent {} bytes at {} of {} of segment {}, where byte {} of {} is next",
        expected.sender, data.size(), part.offset, part.total, part.segment, received_, total));
  }
  if (slot.empty()) slot_ = arena.take(total);
  std::ranges::copy(data, slot_.bytes.subspan(received_).begin());
  received_ += data.size();
  done_ = received_ == total;
  return {};
}

}  // namespace atl::collective
