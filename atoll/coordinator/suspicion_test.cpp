#include "atoll/coordinator/suspicion.h"

#include <gtest/gtest.h>

#include <random>

namespace atl::swarm {
namespace {

using std::chrono::milliseconds;
constexpr SuspicionOptions kOptions;

TEST(SuspicionTest, ARegularPeerIsMissedSoon) {
  Time now{};
  Suspicion peer(kOptions, now);
  for (int i = 0; i < 50; ++i) peer.heard(now += milliseconds(400 + i % 3));
  EXPECT_EQ(peer.patience(), kOptions.least);
  EXPECT_EQ(peer.away_at(), now + kOptions.least);
}

/// Pauses as a loaded machine or a jittery line makes them: hardly ever is it thought away.
TEST(SuspicionTest, AnIrregularPeerHasMoreTime) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> pause(0.3,
                                            0.7);  // Median 1.35 s, one in a thousand over 11 s.
  Time now{};
  Suspicion peer(kOptions, now);
  int missed = 0;
  for (int i = 0; i < 20'000; ++i) {
    now += duration_of(pause(random));
    if (now > peer.away_at()) ++missed;
    peer.heard(now);
    EXPECT_LE(peer.patience(), kOptions.most);
  }
  EXPECT_LT(missed, 100);  // 0.5 %.
}

TEST(SuspicionTest, OneLongAbsenceIsSoonForgotten) {
  Time now{};
  Suspicion peer(kOptions, now);
  for (int i = 0; i < 50; ++i) peer.heard(now += milliseconds(400));
  peer.heard(now += std::chrono::seconds(60));
  EXPECT_LT(peer.patience(), std::chrono::seconds(4));
  for (int i = 0; i < 75; ++i) peer.heard(now += milliseconds(400));  // Half a minute.
  EXPECT_EQ(peer.patience(), kOptions.least);
}

TEST(SuspicionTest, ANewPeerHasTheTimeThatIsExpectedOfIt) {
  const Suspicion peer({.expected = std::chrono::seconds(2)}, Time{});
  EXPECT_EQ(peer.patience(),
            std::chrono::seconds(8));  // The mean and six deviations of half of it.
}

}  // namespace
}  // namespace atl::swarm
