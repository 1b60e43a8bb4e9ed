#include "atoll/island/link_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>

#include "atoll/testing/thread_group.h"

namespace atl::island {
namespace {

/// How long round `number` takes in which a member sends `bytes`.
using Line = std::function<double(int64_t number, double bytes)>;

/// Two members on a line with a clock of its own; the other one measures what this one does.
class FakeLine final : public collective::Averager {
 public:
  explicit FakeLine(Line line) : line_(std::move(line)) {}
  int num_members() const override { return 2; }
  void begin(collective::Contribution contribution) override { begun_ = std::move(contribution); }
  Result<collective::Commit> wait(int64_t round) override {
    EXPECT_EQ(begun_.round, round);
    EXPECT_EQ(round, num_rounds++);
    const double bytes = 4.0 * static_cast<double>(begun_.values.size());
    largest_bytes = std::max(largest_bytes, bytes);
    clock.advance(duration_of(line_(round, bytes)));
    std::vector<float> mean(begun_.values.begin(), begun_.values.end());
    for (float& value : mean) value /= 2;
    mean[1] = mean[0];
    begun_.prepare(mean, {});
    return collective::Commit{.round = round};
  }
  collective::ExchangeStats stats() const override { return {}; }

  ManualClock clock;
  int64_t num_rounds = 0;
  double largest_bytes = 0;

 private:
  Line line_;
  collective::Contribution begun_;
};

/// A member whose rounds take as long as its own line says, on its own clock.
class Timed final : public collective::Averager {
 public:
  Timed(collective::Averager& inner, ManualClock& clock, Line line)
      : inner_(inner), clock_(clock), line_(std::move(line)) {}
  int num_members() const override { return inner_.num_members(); }
  void begin(collective::Contribution contribution) override {
    bytes_ = 4.0 * static_cast<double>(contribution.values.size() * (inner_.num_members() - 1));
    inner_.begin(std::move(contribution));
  }
  Result<collective::Commit> wait(int64_t round) override {
    clock_.advance(duration_of(line_(round, bytes_)));
    return inner_.wait(round);
  }
  collective::ExchangeStats stats() const override { return {}; }

 private:
  collective::Averager& inner_;
  ManualClock& clock_;
  Line line_;
  double bytes_ = 0;
};

constexpr double kMuch = 1e9;

method::Measured probe(FakeLine& line, double most_bytes = kMuch) {
  const auto measured = probe_links(line, 0, 0.25, most_bytes, line.clock).value();
  EXPECT_EQ(measured.size(), 2U);
  EXPECT_EQ(measured[0].bits_per_second, measured[1].bits_per_second);
  EXPECT_NEAR(measured[0].step_seconds, 0.25, 1e-6);
  EXPECT_LE(line.num_rounds, kProbeRounds);
  return measured[0];
}

/// A round is five trips (two words with the coordinator) and, like TCP on a line that was idle,
/// sends 14 KB in the first round trip and twice as much in each that follows, up to the rate.
Line slow_start(double bits_per_second, double round_trip) {
  return [=](int64_t, double bytes) {
    double seconds = 2.5 * round_trip;
    const double most = bits_per_second / 8 * round_trip;
    bytes += 1000;  // Of messages.
    for (double window = 14e3; bytes > window && window < most; window *= 2) {
      seconds += round_trip;
      bytes -= window;
    }
    return seconds + bytes * 8 / bits_per_second;
  };
}

TEST(LinkProbeTest, MeasuresTheLineAndNotHowTcpStarts) {
  for (const double rate : {20e3, 200e3, 2e6, 20e6, 200e6, 1e9, 10e9}) {
    for (const double round_trip : {0.0002, 0.01, 0.05, 0.15}) {
      SCOPED_TRACE(testing::Message() << rate << " bit/s, round trip " << round_trip << " s");
      FakeLine line(slow_start(rate, round_trip));
      const method::Measured measured = probe(line);
      EXPECT_LT(measured.bits_per_second, 1.05 * rate);
      // What starts anew after each pause never gets far beyond this in the time there is.
      const double reachable = std::min(rate, 12e6 / round_trip);
      EXPECT_GT(measured.bits_per_second, 0.3 * reachable);
      EXPECT_GE(measured.round_seconds, 2.5 * round_trip);
      EXPECT_LT(measured.round_seconds, 2.5 * round_trip + 2 * 8 * 1010 / rate);
      EXPECT_LT(seconds(line.clock.now() - Time{}), 5.5 + 80 * round_trip);
      EXPECT_LE(line.largest_bytes, 32 << 20);
    }
  }
}

/// Nor is a small model's line measured with more than it will ever carry.
TEST(LinkProbeTest, CarriesNoMoreInARoundThanTrainingWill) {
  for (const double most : {8.0, 1000.0, 100e3, 3e6}) {
    for (const double rate : {1e6, 1e9}) {
      SCOPED_TRACE(testing::Message() << rate << " bit/s, at most " << most << " bytes");
      FakeLine line(slow_start(rate, 0.02));
      const method::Measured measured = probe(line, most);
      EXPECT_LE(line.largest_bytes, most);
      // What counts: how long such a round is thought to take.
      const double predicted = measured.round_seconds + 8 * most / measured.bits_per_second;
      const double real = slow_start(rate, 0.02)(0, most);
      EXPECT_GT(predicted, 0.7 * real);
      EXPECT_LT(predicted, 3 * real);
    }
  }
}

TEST(LinkProbeTest, ARoundThatIsHeldUpDoesNotCount) {
  for (const double rate : {100e3, 10e6, 1e9}) {
    const Line steady = slow_start(rate, 0.02);
    FakeLine undisturbed(steady);
    const double expected = probe(undisturbed).bits_per_second;
    for (int64_t late = 0; late < undisturbed.num_rounds; ++late) {
      SCOPED_TRACE(testing::Message() << rate << " bit/s, round " << late << " late");
      FakeLine line([&](int64_t round, double bytes) {
        return steady(round, bytes) + (round == late ? 1.5 : 0);
      });
      const method::Measured measured = probe(line);
      EXPECT_GT(measured.bits_per_second, 0.5 * expected);
      EXPECT_LT(measured.bits_per_second, 2 * expected);
      EXPECT_LT(measured.round_seconds, 0.3);
    }
  }
}

/// What members measure differs; the rounds that they take must not.
TEST(LinkProbeTest, MembersWithOtherTimesTakeTheSameRounds) {
  constexpr int kMembers = 3;
  collective::ThreadGroup group(kMembers);
  std::vector<std::future<std::vector<method::Measured>>> results;
  for (int rank = 0; rank < kMembers; ++rank) {
    results.push_back(std::async(std::launch::async, [&group, rank] {
      const auto member = group.member(rank);
      ManualClock clock;
      Timed timed(*member, clock, slow_start(rank == 1 ? 300e3 : 100e6, 0.02 * (1 + rank)));
      return probe_links(timed, rank, 0.5 + rank, kMuch, clock).value();
    }));
  }
  const auto first = results[0].get();
  ASSERT_EQ(first.size(), 3U);
  for (int rank = 0; rank < kMembers; ++rank) {
    const method::Measured& member = first[static_cast<size_t>(rank)];
    EXPECT_NEAR(member.step_seconds, 0.5 + rank, 1e-6);
    EXPECT_NEAR(member.round_seconds, 0.05 * (1 + rank), 0.04);
  }
  EXPECT_LT(first[1].bits_per_second, 1e6);
  EXPECT_GT(first[0].bits_per_second, 1e6);
  for (int rank = 1; rank < kMembers; ++rank) {
    const auto other = results[static_cast<size_t>(rank)].get();
    for (size_t i = 0; i < other.size(); ++i) {
      EXPECT_EQ(other[i].step_seconds, first[i].step_seconds);
      EXPECT_EQ(other[i].round_seconds, first[i].round_seconds);
      EXPECT_EQ(other[i].bits_per_second, first[i].bits_per_second);
    }
  }
}

TEST(LinkProbeTest, AMemberAloneTakesNoRounds) {
  collective::Alone alone;
  const auto measured = probe_links(alone, 0, 0.25, kMuch, ManualClock()).value();
  ASSERT_EQ(measured.size(), 1U);
  EXPECT_EQ(measured[0].step_seconds, 0.25);
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
  EXPECT_EQ(recorder.begun, kProbeRounds + 5);
  EXPECT_EQ(shifted.wait(5)->round, 5);
  EXPECT_EQ(shifted.stats().bytes_sent, 7);
}

}  // namespace
}  // namespace atl::island
