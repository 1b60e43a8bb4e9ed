#include "atoll/net/link_estimate.h"

#include <gtest/gtest.h>

#include <deque>

namespace atl::net {
namespace {

using std::chrono::milliseconds;

/// A line with a rate and a delay in a virtual time; the other side answers each frame.
struct Line {
  double bytes_per_second = 0;
  Duration one_way{};
  Time now{};
  Time free{};
  LinkEstimator estimator{};
  std::deque<std::pair<Time, LinkEstimator::Mark>> on_their_way{};

  void send(int64_t bytes) {
    const auto mark = estimator.sent(now, bytes);
    free = std::max(free, now) +
           Duration(static_cast<int64_t>(1e9 * static_cast<double>(bytes) / bytes_per_second));
    on_their_way.emplace_back(free + 2 * one_way, mark);
  }
  void run_until(Time end) {
    while (!on_their_way.empty() && on_their_way.front().first <= end) {
      estimator.arrived(on_their_way.front().first, on_their_way.front().second);
      on_their_way.pop_front();
    }
    now = end;
  }
  /// Sends so much at once, every `period`, for `duration`.
  void load(int64_t bytes, Duration period, Duration duration) {
    for (const Time end = now + duration; now < end; run_until(now + period)) send(bytes);
  }
  double rate() const { return estimator.estimate().bytes_per_second; }
  double trip() const { return seconds(estimator.estimate().round_trip); }
};

TEST(LinkEstimateTest, NothingIsKnownAtFirst) {
  const LinkEstimator estimator;
  EXPECT_EQ(estimator.estimate().bytes_per_second, 0);
  EXPECT_EQ(estimator.estimate().round_trip, Duration{});
}

TEST(LinkEstimateTest, AFullLineShowsItsRate) {
  for (const double rate : {2.5e3, 1e6, 60e6}) {
    Line line{.bytes_per_second = rate, .one_way = milliseconds(50)};
    for (int i = 0; i < 40; ++i) line.send(65'536);  // All at once: they queue.
    line.run_until(Time{} + std::chrono::hours(1));
    EXPECT_NEAR(line.rate() / rate, 1, rate > 1e7 ? 0.75 : 0.1) << rate;
    EXPECT_LT(line.rate(), rate * 1.1);
  }
}

TEST(LinkEstimateTest, ALongTransferShowsTheRateThoughTheTripIsLong) {
  Line line{.bytes_per_second = 60e6, .one_way = milliseconds(50)};
  line.load(600'000, milliseconds(10), std::chrono::seconds(5));
  EXPECT_NEAR(line.rate() / 60e6, 1, 0.02);
  EXPECT_NEAR(line.trip(), 0.1, 0.02);
}

TEST(LinkEstimateTest, SendingLittleDoesNotLowerTheRate) {
  Line line{.bytes_per_second = 1e6, .one_way = milliseconds(10)};
  line.load(100'000, milliseconds(100), std::chrono::seconds(3));
  const double full = line.rate();
  line.load(2'000, milliseconds(100), std::chrono::seconds(20));
  EXPECT_NEAR(line.rate(), full, 1);
}

TEST(LinkEstimateTest, TheFirstSmallFrameShowsTheRoundTripOfASlowLine) {
  Line line{.bytes_per_second = 2.5e3, .one_way = milliseconds(50)};
  line.send(100);
  line.run_until(line.now + std::chrono::seconds(1));
  for (int i = 0; i < 10; ++i) line.send(65'536);
  line.run_until(line.now + std::chrono::hours(1));
  EXPECT_NEAR(line.trip(), 0.14, 0.05);
}

TEST(LinkEstimateTest, ALineThatChangesIsSeenWithinTwoWindows) {
  Line line{.bytes_per_second = 10e6, .one_way = milliseconds(10)};
  line.load(1'000'000, milliseconds(100), std::chrono::seconds(10));
  EXPECT_NEAR(line.rate() / 10e6, 1, 0.05);
  line.bytes_per_second = 1e6;
  line.one_way = milliseconds(60);
  line.load(90'000, milliseconds(100), std::chrono::seconds(70));
  EXPECT_NEAR(line.rate() / 1e6, 1, 0.15);
  EXPECT_LT(line.trip(), 0.03) << "the best within two windows";
  line.run_until(line.now + std::chrono::minutes(4));
  line.load(90'000, milliseconds(100), std::chrono::seconds(10));
  EXPECT_LT(line.trip(), 0.03);
  line.run_until(line.now + std::chrono::minutes(10));
  line.load(90'000, milliseconds(100), std::chrono::minutes(6));
  EXPECT_NEAR(line.trip(), 0.12, 0.03);
  line.bytes_per_second = 20e6;  // Better is seen at once.
  line.load(2'000'000, milliseconds(100), std::chrono::seconds(3));
  EXPECT_NEAR(line.rate() / 20e6, 1, 0.05);
}

TEST(LinkEstimateTest, AnIdleLineKeepsItsEstimate) {
  Line line{.bytes_per_second = 1e6, .one_way = milliseconds(10)};
  line.load(100'000, milliseconds(100), std::chrono::seconds(3));
  const double full = line.rate();
  line.run_until(line.now + std::chrono::hours(2));
  EXPECT_EQ(line.rate(), full);
}

}  // namespace
}  // namespace atl::net
