#include "atoll/island/link_probe.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/codec/codec.h"

namespace atl::island {
namespace {

constexpr int kNumSmall = 3;
constexpr size_t kFirstBytes = size_t{2} << 10;     // That a member sends: 0.8 s at 20 kbit/s.
constexpr size_t kLargestBytes = size_t{32} << 20;  // 0.3 s at 1 Gbit/s.
constexpr size_t kGrowth = 4;
/// A round this many times as long as a small one shows the line and not the round trips.
constexpr double kClear = 8;
/// No round is begun that would probably take longer than this beside its round trips.
constexpr double kLongestSeconds = 3;

using PerMember = std::vector<double>;  // By rank.

double largest(const PerMember& values) { return *std::ranges::max_element(values); }

/// Takes the rounds. What it returns is the same bits on all members.
class Prober {
 public:
  Prober(collective::Averager& averager, int rank, const Clock& clock)
      : averager_(averager),
        rank_(static_cast<size_t>(rank)),
        num_members_(static_cast<size_t>(averager.num_members())),
        clock_(clock) {}

  size_t values_of(size_t bytes) const {
    return std::max(num_members_, bytes / sizeof(float) / (num_members_ - 1));
  }
  double bits_of(size_t bytes) const {
    return 8.0 * sizeof(float) * static_cast<double>(values_of(bytes) * (num_members_ - 1));
  }

  /// What each member says, in a round of its own.
  Result<PerMember> tell(double own) {
    told_.assign(num_members_, 0.0F);
    told_[rank_] = static_cast<float>(own);
    if (auto taken = take(told_); !taken) return tl::unexpected(taken.error());
    PerMember out;  // The others' zeros and the weight are in the mean.
    for (const float value : told_) out.push_back(value * static_cast<double>(num_members_));
    return out;
  }
  /// How long a round takes each member in which it sends `bytes` (0: next to nothing): the median
  /// of as many as said.
  Result<PerMember> measure(size_t bytes, int num_rounds) {
    filling_.resize(values_of(bytes), 1.0F);
    std::vector<double> times;
    for (int i = 0; i < num_rounds; ++i) {
      const Time begin = clock_.now();
      if (auto taken = take(filling_); !taken) return tl::unexpected(taken.error());
      times.push_back(seconds(clock_.now() - begin));
    }
    std::ranges::sort(times);
    return tell(times[times.size() / 2]);
  }

 private:
  /// As many values as there are members are replaced by their means.
  Result<void> take(std::vector<float>& values) {
    ATOLL_CHECK(next_ < kProbeRounds, "the sizes are few");
    std::vector<float> mean(num_members_);
    averager_.begin({.round = next_,
                     .fragment = collective::kNoFragment,
                     .weight = 1,
                     .values = values,
                     .codec = codec_.get(),
                     .topology = collective::Topology::kGather,
                     .prepare = [&mean](std::span<const float> result, std::span<const float>) {
                       std::ranges::copy(result.first(mean.size()), mean.begin());
                       return sha256(std::as_bytes(std::span(mean)));
                     }});
    if (auto commit = averager_.wait(next_++); !commit) return tl::unexpected(commit.error());
    std::ranges::copy(mean, values.begin());
    return {};
  }

  collective::Averager& averager_;
  const size_t rank_;
  const size_t num_members_;
  const Clock& clock_;
  const std::unique_ptr<codec::Codec> codec_ = codec::make_codec("fp32");
  std::vector<float> told_;
  std::vector<float> filling_;
  int64_t next_ = 0;
};

/// The largest round that was taken.
struct Large {
  size_t bytes = 0;
  PerMember seconds;
};

/// Decides by the slowest member's times, which all know: all take the same rounds.
Result<Large> take_large(Prober& prober, double small_seconds, size_t most_bytes) {
  double before = 0;  // What the last size took beside the round trips.
  for (size_t bytes = std::min(kFirstBytes, most_bytes);;
       bytes = std::min(bytes * kGrowth, most_bytes)) {
    const auto is_enough = [&](const PerMember& seconds) {
      const double travel = largest(seconds) - small_seconds;
      const double next = travel + kGrowth * std::max(0.0, travel - before);
      return bytes >= most_bytes || largest(seconds) >= kClear * small_seconds ||
             next > kLongestSeconds;
    };
    auto taken = prober.measure(bytes, 1);
    if (!taken) return tl::unexpected(taken.error());
    if (is_enough(*taken)) {  // Or something held it up: once more.
      const auto again = prober.measure(bytes, 1);
      if (!again) return tl::unexpected(again.error());
      if (largest(*again) < largest(*taken)) taken = again;
    }
    if (is_enough(*taken)) return Large{bytes, *taken};
    before = largest(*taken) - small_seconds;
  }
}

}  // namespace

Result<std::vector<method::Measured>> probe_links(collective::Averager& averager, int rank,
                                                  double step_seconds, double most_bytes,
                                                  const Clock& clock) {
  if (averager.num_members() == 1)
    return std::vector{method::Measured{.step_seconds = step_seconds}};
  Prober prober(averager, rank, clock);
  // The first round waits for whoever is last to start; from then on all begin together.
  const auto steps = prober.tell(step_seconds);
  if (!steps) return tl::unexpected(steps.error());
  const auto small = prober.measure(0, kNumSmall);
  if (!small) return tl::unexpected(small.error());
  const auto large =
      take_large(prober, largest(*small),
                 static_cast<size_t>(std::min(most_bytes, static_cast<double>(kLargestBytes))));
  if (!large) return tl::unexpected(large.error());

  std::vector<method::Measured> out;
  for (size_t member = 0; member < small->size(); ++member) {
    // The small rounds may have been held up: they are not believed to be most of a larger one.
    const double whole = large->seconds[member];
    const double travel = std::max(whole - (*small)[member], whole / 2);
    out.push_back({.step_seconds = (*steps)[member],
                   .round_seconds = (*small)[member],
                   .bits_per_second = prober.bits_of(large->bytes) / travel});
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

std::optional<collective::Commit> OffsetAverager::take_missed() {
  auto commit = inner_.take_missed();
  if (commit) commit->round -= offset_;
  return commit;
}

void OffsetAverager::serve_state(collective::StateProvider provider) {
  inner_.serve_state(
      [provider = std::move(provider), offset = offset_](int32_t fragment, int64_t round) {
        return provider(fragment, round - offset);
      });
}

}  // namespace atl::island
