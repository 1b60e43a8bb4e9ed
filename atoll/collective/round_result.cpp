#include "atoll/collective/round_result.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/segment_mean.h"

namespace atl::collective {
namespace {

constexpr uint32_t kMaxSegments = uint32_t{1} << 24;
constexpr uint32_t kMaxBlobs = 1024;  // Of one segment.
/// From here on a huge page that is not full is little.
constexpr size_t kLargeBytes = size_t{8} << 20;

}  // namespace

std::shared_ptr<const CommittedRound> record_of(const swarm::Commit& message, RoundResult result) {
  return std::make_shared<const CommittedRound>(
      CommittedRound{.round = message.held.round,
                     .fragment = message.held.fragment,
                     .step = message.held.step,
                     .digest = message.held.digest,
                     .count = static_cast<size_t>(message.count),
                     .segment_values = static_cast<size_t>(message.segment_values),
                     .members = message.members,
                     .weights = message.weights,
                     .result = std::move(result)});
}

size_t RoundResult::size_bytes() const {
  size_t size = 0;
  for (const auto& blobs : segments) {
    for (const auto& [key, blob] : blobs) size += blob.bytes.size();
  }
  return size;
}

void RoundResult::compact() {
  const size_t size = size_bytes();
  if (size >= kLargeBytes) return;
  const auto memory = std::make_shared<Bytes>();
  memory->reserve(size);
  for (auto& blobs : segments) {
    for (auto& [key, blob] : blobs) {
      const size_t begin = memory->size();
      memory->insert(memory->end(), blob.bytes.begin(), blob.bytes.end());
      blob = {memory, std::span(memory->data() + begin, blob.bytes.size())};
    }
  }
}

Bytes encode(const RoundResult& result) {
  ByteWriter out;
  out.put(static_cast<uint8_t>(result.topology));
  out.put(static_cast<uint32_t>(result.segments.size()));
  for (const auto& blobs : result.segments) {
    out.put(static_cast<uint32_t>(blobs.size()));
    for (const auto& [key, blob] : blobs) {
      out.put(key).put(static_cast<uint32_t>(blob.bytes.size()));
      out.put_bytes(blob.bytes);
    }
  }
  return out.take();
}

RoundResult decode_result(std::span<const std::byte> bytes) {
  const auto memory = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  ByteReader in(*memory);
  RoundResult result;
  const auto topology = in.get<uint8_t>();
  if (topology > 1) throw InputError("a result of an unknown topology");
  result.topology = static_cast<Topology>(topology);
  const auto num_segments = in.get<uint32_t>();
  if (num_segments > kMaxSegments) throw InputError("a result of too many segments");
  for (uint32_t i = 0; i < num_segments; ++i) {
    auto& blobs = result.segments.emplace_back();
    const auto num_blobs = in.get<uint32_t>();
    if (num_blobs > kMaxBlobs) throw InputError("a result of too many contributions");
    for (uint32_t j = 0; j < num_blobs; ++j) {
      const auto key = in.get<int32_t>();
      blobs[key] = {memory, in.get_bytes(in.get<uint32_t>())};
    }
  }
  in.expect_end();
  return result;
}

Result<void> decode_mean(const CommittedRound& committed, const codec::Codec& codec,
                         std::span<float> mean) {
  std::ranges::fill(mean, 0.0F);
  const auto& segments = committed.result.segments;
  if (std::ranges::all_of(committed.weights, [](int64_t weight) { return weight == 0; })) return {};
  const size_t num_segments =
      (committed.count + committed.segment_values - 1) / committed.segment_values;
  if (mean.size() != committed.count || segments.size() != num_segments) {
    return failure(fmt::format("the result of round {} has {} segments, where {} values have {}",
                               committed.round, segments.size(), mean.size(), num_segments));
  }
  const bool gathers = committed.result.topology == Topology::kGather;
  const MeanRule rule{.codec = &codec,
                      .sequence = static_cast<uint32_t>(committed.round),
                      .coefficients = coefficients(committed.weights)};
  std::vector<float> values(std::min(committed.count, committed.segment_values));
  try {
    for (size_t i = 0; i < segments.size(); ++i) {
      const size_t begin = i * committed.segment_values;
      const size_t size = std::min(committed.segment_values, committed.count - begin);
      SegmentMean made(rule, mean.subspan(begin, size));
      if (!gathers) {
        made.hold(segments[i].at(kMeanKey).bytes);
        continue;
      }
      while (const auto rank = made.wanted()) {
        const int32_t number = committed.members.at(static_cast<size_t>(*rank));
        made.add(segments[i].at(number).bytes, std::span(values).first(size));
      }
    }
  } catch (const std::exception& error) {  // A blob that is missing, or no such encoding.
    return failure(
        fmt::format("the result of round {} cannot be used: {}", committed.round, error.what()));
  }
  return {};
}

std::vector<float> own_as_decoded(const Contribution& contribution,
                                  const CommittedRound& committed) {
  std::vector<float> own(contribution.num_values());
  if (contribution.weight == 0) return own;
  Bytes encoded;
  const auto sequence = static_cast<uint32_t>(committed.round);
  for (size_t begin = 0; begin < own.size(); begin += committed.segment_values) {
    const size_t size = std::min(committed.segment_values, own.size() - begin);
    encoded.clear();
    contribution.encode(begin, size, sequence, encoded);
    contribution.codec->decode(encoded, std::span(own).subspan(begin, size), sequence);
  }
  return own;
}

}  // namespace atl::collective
