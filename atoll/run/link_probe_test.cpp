#include "atoll/run/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "atoll/collective/thread_group.h"

namespace atl::run {
namespace {

TEST(LinkProbeTest, AllMembersLearnTheSame) {
  constexpr int kMembers = 3;
  collective::ThreadGroup group(kMembers);
  const SystemClock clock;
  std::vector<std::future<std::vector<sync::Measured>>> results;
  for (int rank = 0; rank < kMembers; ++rank) {
    results.push_back(std::async(std::launch::async, [&group, &clock, rank] {
      const auto member = group.member(rank);
      return probe_links(*member, rank, 0.5 + rank, clock).value();
    }));
  }
  const auto first = results[0].get();
  ASSERT_EQ(first.size(), 3U);
  for (int rank = 0; rank < kMembers; ++rank) {
    const sync::Measured& member = first[static_cast<size_t>(rank)];
    EXPECT_NEAR(member.step_seconds, 0.5 + rank, 1e-6);
    EXPECT_GT(member.round_seconds, 0);
    EXPECT_GT(member.bits_per_second, 1e6);
  }
  for (int rank = 1; rank < kMembers; ++rank) {
    const auto other = results[static_cast<size_t>(rank)].get();
    for (size_t i = 0; i < other.size(); ++i) {
      EXPECT_EQ(other[i].step_seconds, first[i].step_seconds);
      EXPECT_EQ(other[i].round_seconds, first[i].round_seconds);
      EXPECT_EQ(other[i].bits_per_second, first[i].bits_per_second);
    }
  }
}

/// Counts what passes.
class Recorder final : public collective::Averager {
 public:
  int num_members() const override { return 2; }
  void begin(collective::Contribution contribution) override { begun = contribution.round; }
  Result<collective::Commit> wait(int64_t round) override {
    return collective::Commit{.round = round};
  }
  collective::ExchangeStats stats() const override { return {.bytes_sent = 7}; }
  int64_t begun = -1;
};

TEST(LinkProbeTest, RoundsOfTheRunFollowThoseOfTheProbe) {
  Recorder recorder;
  OffsetAverager shifted(recorder, kProbeRounds);
  shifted.begin({.round = 5});
  EXPECT_EQ(recorder.begun, 9);
  EXPECT_EQ(shifted.wait(5)->round, 5);
  EXPECT_EQ(shifted.stats().bytes_sent, 7);
}

}  // namespace
}  // namespace atl::run
