#pragma once
// What a committed round was made of, in few bytes: enough for a member that had no part in it, or
// that lost the last step of it, to have the same mean to the bit. Reads what strangers send.
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/base/result.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/blob_arena.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

/// One encoded blob for each segment: of the mean (kScatter), or of each contribution of weight
/// over 0, by number (kGather). Without segments the mean is zero.
struct RoundResult {
  Topology topology = Topology::kScatter;
  std::vector<std::map<int32_t, SharedBytes>> segments;

  size_t size_bytes() const;
  /// Copies the blobs together where the pages that they lie in are much larger than they are.
  void compact();
};

/// The key of a mean among the blobs of a segment.
constexpr int32_t kMeanKey = -1;

Bytes encode(const RoundResult& result);
/// Throws InputError.
RoundResult decode_result(std::span<const std::byte> bytes);

/// A round that was committed, as the coordinator announced it, and its result.
struct CommittedRound {
  int64_t round = 0;
  int32_t fragment = 0;
  int64_t step = 0;
  Digest digest{};  // Of the fragment's state after it.
  size_t count = 0;
  size_t segment_values = 0;
  std::vector<int32_t> members;  // Numbers, rising.
  std::vector<int64_t> weights;
  RoundResult result;
};

std::shared_ptr<const CommittedRound> record_of(const swarm::Commit& message, RoundResult result);

/// The round's mean, as its members had it; `mean` has committed.count values. Fails when the
/// result is not one of that round.
[[nodiscard]] Result<void> decode_mean(const CommittedRound& committed, const codec::Codec& codec,
                                       std::span<float> mean);

/// A contribution as the others decode it, where there is none from the exchange.
std::vector<float> own_as_decoded(const Contribution& contribution,
                                  const CommittedRound& committed);

}  // namespace atl::collective
