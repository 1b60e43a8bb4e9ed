#include "atoll/swarm/link_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <tuple>

#include "atoll/base/error.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/coordinator/probers.h"
#include "atoll/swarm/inbox.h"
#include "atoll/swarm/wire.h"
#include "atoll/testing/memory_transport.h"

namespace atl::swarm {
namespace {

using testing::HasSubstr;

/// A line whose two directions are known, and a coordinator that answers at once.
struct SimulatedLine {
  double up_bits_per_s;
  double down_bits_per_s;
  double trip_s;

  MeasuredLink measure(double connecting_s = 0) const {
    struct Reply {
      double at;
    };
    LinkMeasurement measurement;
    Probers probers;  // What a coordinator bears.
    std::vector<net::ConnectionId> ended;
    EXPECT_TRUE(probers.admit(1, "10.0.0.1:1", Time{}, ended));
    std::deque<Reply> replies;
    double up_free = 0;
    double down_free = 0;
    double now = connecting_s;
    const auto time = [](double s) { return Time{} + duration_of(s); };
    const auto send = [&](const LinkMeasurement::Probes& probes) {
      for (const Probe& probe : probes) {
        EXPECT_TRUE(probers.spend(1, probe, time(now))) << now;
        up_free =
            std::max(up_free, now) + 8 * static_cast<double>(probe.data.size()) / up_bits_per_s;
        down_free = std::max(down_free, up_free + trip_s / 2) +
                    8 * static_cast<double>(probe.reply_bytes) / down_bits_per_s;
        replies.push_back({down_free + trip_s / 2});
      }
    };
    send(measurement.start(time(0)));
    while (!measurement.is_done()) {
      EXPECT_FALSE(replies.empty());
      if (replies.empty()) break;
      now = replies.front().at;
      replies.pop_front();
      EXPECT_TRUE(probers.end_late(time(now)).empty()) << "silent for too long at " << now;
      EXPECT_TRUE(measurement.expected());
      send(measurement.answered(time(now)));
    }
    EXPECT_FALSE(measurement.expected());
    return measurement.result();
  }
};

TEST(LinkMeasurement, FindsRatesAndTheRoundTrip) {
  for (const double up : {0.1e6, 2e6, 20e6, 200e6, 1e9}) {
    for (const double down : {0.2e6, 5e6, 100e6, 2e9}) {
      for (const double trip : {0.001, 0.03, 0.1}) {
        // More than the window carries is another test's.
        if (std::max(up, down) * trip > 0.8 * 8 * (3 << 20)) continue;
        const MeasuredLink link = SimulatedLine{up, down, trip}.measure();
        EXPECT_NEAR(link.up_bits_per_s, up, 0.1 * up) << up << " " << down << " " << trip;
        EXPECT_NEAR(link.down_bits_per_s, down, 0.1 * down) << up << " " << down << " " << trip;
        EXPECT_NEAR(link.round_trip_s, trip, 1e-6);
        EXPECT_FALSE(link.is_window_full);
      }
    }
  }
}

TEST(LinkMeasurement, TheFirstRoundTripHoldsTheConnecting) {
  EXPECT_NEAR((SimulatedLine{1e7, 1e7, 0.02}.measure(0.5).round_trip_s), 0.02, 1e-6);
}

TEST(LinkMeasurement, SaysWhenTheLineIsLongerThanItsWindow) {
  const MeasuredLink link = SimulatedLine{1e9, 1e9, 0.2}.measure();
  EXPECT_TRUE(link.is_window_full);
  EXPECT_NEAR(link.up_bits_per_s, 8 * (3 << 20) / 0.2, 0.15 * 8 * (3 << 20) / 0.2);
}

TEST(LinkMeasurement, ASlowLineTakesNotTooLong) {
  const MeasuredLink link = SimulatedLine{20e3, 20e3, 0.3}.measure();
  EXPECT_NEAR(link.up_bits_per_s, 20e3, 5e3);
  EXPECT_NEAR(link.down_bits_per_s, 20e3, 5e3);
}

/// A real coordinator over a network within this process.
class LinkMeasurementServerTest : public testing::Test {
 protected:
  explicit LinkMeasurementServerTest(size_t queue_bytes = size_t{4} << 20)
      : network(queue_bytes),
        server(
            {{.options = {.run = "r", .min_replicas = 1}}},
            [this](net::Transport::Sink sink) { return network.make_transport(std::move(sink)); },
            clock) {
    address = *server.listen("coordinator:1");
    thread = std::thread([this] { std::ignore = server.run([this] { return stops.load(); }); });
  }
  ~LinkMeasurementServerTest() override {
    stops = 2;
    thread.join();
  }
  net::TransportFactory factory() {
    return [this](net::Transport::Sink sink) { return network.make_transport(std::move(sink)); };
  }

  SystemClock clock;
  net::MemoryNetwork network;
  CoordinatorServer server;
  std::string address;
  std::atomic<int> stops{0};
  std::thread thread;
};

TEST_F(LinkMeasurementServerTest, ACoordinatorAnswersWithoutARun) {
  const auto link = measure_link(address, factory(), clock, [] { return false; });
  ASSERT_TRUE(link) << link.error().message;
  EXPECT_GT(link->up_bits_per_s, 1e6);
  EXPECT_GT(link->down_bits_per_s, 1e6);
  EXPECT_GT(link->round_trip_s, 0);
}

class LinkMeasurementSlowReaderTest : public LinkMeasurementServerTest {
 protected:
  LinkMeasurementSlowReaderTest() : LinkMeasurementServerTest(size_t{1} << 20) {}
};

/// Nothing is built and dropped for who asks and does not read: its connection ends.
TEST_F(LinkMeasurementSlowReaderTest, WhoDoesNotReadIsClosed) {
  std::mutex reading;
  std::unique_lock not_reading(reading);
  std::atomic<size_t> num_replies{0};
  std::atomic<bool> is_lost{false};
  const auto stranger = network.make_transport([&](const net::Event& event) {
    const std::lock_guard lock(reading);
    if (std::holds_alternative<net::Received>(event)) num_replies += 1;
    if (std::holds_alternative<net::Lost>(event)) is_lost = true;
  });
  const auto connection = stranger->connect(address, net::Plane::kControl);
  constexpr size_t kAsked = 20;
  for (size_t i = 0; i < kAsked; ++i) {
    std::ignore = stranger->send(connection, encode(Probe{.reply_bytes = kMaxProbeBytes}));
  }
  // Once the coordinator has looked at all of them it answers somebody else.
  const auto link = measure_link(
      address, [&](net::Transport::Sink sink) { return network.make_transport(std::move(sink)); },
      clock, [] { return false; });
  EXPECT_FALSE(link);  // From one place only one at a time; what counts is that it was heard.
  not_reading.unlock();
  const Time deadline = clock.now() + std::chrono::seconds(30);
  while (!is_lost && clock.now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(is_lost);
  EXPECT_LT(num_replies, kAsked);
}

TEST_F(LinkMeasurementServerTest, FailuresAreSentences) {
  const auto nobody = measure_link("nobody:9", factory(), clock, [] { return false; });
  ASSERT_FALSE(nobody);
  EXPECT_THAT(nobody.error().message, HasSubstr("cannot be measured"));
  const auto cancelled = measure_link(address, factory(), clock, [] { return true; });
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().message, "interrupted");
}

/// Whoever answers with something else is told apart, and brings nothing down.
TEST(LinkMeasurementAnswers, StrangersAreNoCoordinators) {
  for (const Bytes& answer : {encode(Goodbye{}), encode(ProbeReply{{}, Bytes(9)}),
                              encode(Refused{{}, "busy"}), Bytes(3, std::byte{1})}) {
    const SystemClock clock;
    net::MemoryNetwork network;
    Inbox<net::Event> inbox(size_t{1} << 20);
    const auto stranger =
        network.make_transport([&](net::Event event) { inbox.push(std::move(event)); });
    const std::string address = *stranger->listen("stranger:1");
    const std::jthread thread([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const auto event = inbox.pop(std::chrono::milliseconds(10));
        if (!event || !std::holds_alternative<net::Received>(*event)) continue;
        std::ignore = stranger->send(std::get<net::Received>(*event).connection, answer);
      }
    });
    const auto link = measure_link(
        address, [&](net::Transport::Sink sink) { return network.make_transport(std::move(sink)); },
        clock, [] { return false; });
    ASSERT_FALSE(link);
    EXPECT_THAT(link.error().message,
                testing::AnyOf(HasSubstr("not asked for"), HasSubstr("refused: busy"),
                               HasSubstr("no coordinator")));
  }
}

}  // namespace
}  // namespace atl::swarm
