#include "atoll/run/link_probe.h"

#include <algorithm>
#include <utility>

#include "atoll/codec/codec.h"

namespace atl::run {
namespace {

/// 256 KiB: two seconds on a line of 1 Mbit/s to each other member, and on a fast one longer than a
/// round trip.
constexpr size_t kProbeValues = size_t{1} << 16;
constexpr double kShortest = 1e-5;  // Seconds: shorter differences are noise.
constexpr size_t kFields = 4;       // Of each member: 1, then what it measured.

/// Takes a round with all members; the mean replaces `values`. Seconds from begin to commit.
Result<double> take_round(collective::Averager& averager, int64_t round, std::vector<float>& values,
                          const Clock& clock) {
  const auto codec = codec::make_codec("fp32");
  std::vector<float> mean(values.size());
  const Time begin = clock.now();
  averager.begin({.round = round,
                  .weight = 1,
                  .values = values,
                  .codec = codec.get(),
                  .topology = collective::Topology::kGather,
                  .prepare = [&mean](std::span<const float> result, std::span<const float>) {
                    std::ranges::copy(result, mean.begin());
                    return sha256(std::as_bytes(result));
                  }});
  if (auto commit = averager.wait(round); !commit) return tl::unexpected(commit.error());
  values = std::move(mean);
  return seconds(clock.now() - begin);
}

}  // namespace

Result<std::vector<sync::Measured>> probe_links(collective::Averager& averager, int rank,
                                                double step_seconds, const Clock& clock) {
  const auto num_members = static_cast<size_t>(averager.num_members());
  std::vector<float> small(1);
  std::vector<float> large(kProbeValues, 1.0F);
  // The first round waits for whoever is last to start; from then on all begin together.
  const auto first = take_round(averager, 0, small, clock);
  if (!first) return tl::unexpected(first.error());
  const auto round_seconds = take_round(averager, 1, small, clock);
  if (!round_seconds) return tl::unexpected(round_seconds.error());
  const auto large_seconds = take_round(averager, 2, large, clock);
  if (!large_seconds) return tl::unexpected(large_seconds.error());

  const double bits = 32.0 * kProbeValues * static_cast<double>(num_members - 1);
  const double travel = std::max(kShortest, *large_seconds - *round_seconds);
  std::vector<float> table(num_members * kFields);
  const size_t own = static_cast<size_t>(rank) * kFields;
  table[own] = 1;
  table[own + 1] = static_cast<float>(step_seconds);
  table[own + 2] = static_cast<float>(*round_seconds);
  table[own + 3] = static_cast<float>(bits / travel);
  const auto last = take_round(averager, 3, table, clock);
  if (!last) return tl::unexpected(last.error());

  std::vector<sync::Measured> out;
  for (size_t member = 0; member < num_members; ++member) {
    const float* const row = table.data() + member * kFields;  // Each times the member's weight.
    out.push_back({.step_seconds = row[1] / row[0],
                   .round_seconds = row[2] / row[0],
                   .bits_per_second = row[3] / row[0]});
  }
  return out;
}

void OffsetAverager::begin(collective::Contribution contribution) {
  contribution.round += offset_;
  inner_.begin(std::move(contribution));
}

Result<collective::Commit> OffsetAverager::wait(int64_t round) {
  auto commit = inner_.wait(round + offset_);
  if (commit) commit->round -= offset_;
  return commit;
}

}  // namespace atl::run
