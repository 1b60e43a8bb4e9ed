#pragma once
// For tests: one round as the protocol defines it, in one place and one pass over all members'
// values. Shares no code with Exchange.
#include <algorithm>
#include <span>
#include <vector>

#include "atoll/codec/codec.h"
#include "atoll/collective/averager.h"

namespace atl::collective {

/// By rank where there is one for each member.
struct DefinedRound {
  std::vector<float> mean;
  std::vector<std::vector<float>> own;
  std::vector<std::vector<float>> new_residuals;  // Empty without residuals.
};

struct RoundInputs {
  const codec::Codec* codec = nullptr;
  Topology topology = Topology::kScatter;
  uint32_t sequence = 0;
  std::vector<std::vector<float>> values;
  std::vector<int64_t> weights;
  std::vector<int64_t> shares;                // Segments.
  std::vector<std::vector<float>> residuals;  // May be empty.
  size_t segment_values = 0;
};

inline DefinedRound define_round(const RoundInputs& in) {
  const size_t count = in.values[0].size();
  int64_t sum = 0;
  for (const int64_t weight : in.weights) sum += weight;
  DefinedRound out{.mean = std::vector<float>(count),
                   .own = {in.values.size(), std::vector<float>(count)},
                   .new_residuals = in.residuals};
  if (sum == 0) return out;
  const auto pass = [&](std::span<const float> from, std::span<float> to) {
    Bytes bytes;
    in.codec->encode(from, bytes, in.sequence);
    in.codec->decode(bytes, to, in.sequence);
  };
  const auto segment = [&](size_t owner, size_t begin, size_t size) {
    const auto mean = std::span(out.mean).subspan(begin, size);
    for (size_t rank = 0; rank < in.values.size(); ++rank) {
      if (in.weights[rank] == 0) continue;
      const auto own = std::span(out.own[rank]).subspan(begin, size);
      pass(std::span(in.values[rank]).subspan(begin, size), own);
      const auto factor =
          static_cast<float>(static_cast<double>(in.weights[rank]) / static_cast<double>(sum));
      for (size_t i = 0; i < size; ++i) mean[i] += factor * own[i];
    }
    if (in.topology == Topology::kGather) return;
    std::vector<float> sent(mean.begin(), mean.end());
    if (!in.residuals.empty()) {
      for (size_t i = 0; i < size; ++i) sent[i] += in.residuals[owner][begin + i];
    }
    pass(sent, mean);
    if (in.residuals.empty()) return;
    for (size_t i = 0; i < size; ++i) out.new_residuals[owner][begin + i] = sent[i] - mean[i];
  };
  size_t owner = 0;
  int64_t left = in.topology == Topology::kGather ? 0 : in.shares[0];
  for (size_t begin = 0; begin < count; begin += in.segment_values) {
    while (in.topology == Topology::kScatter && left == 0) left = in.shares[++owner];
    segment(owner, begin, std::min(in.segment_values, count - begin));
    left -= 1;
  }
  return out;
}

}  // namespace atl::collective
