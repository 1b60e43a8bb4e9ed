// Over memory, so that ThreadSanitizer sees it, with several lanes from the first confirmation on.
#include "atoll/net/striped_transport.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "atoll/net/stripe_frame.h"
#include "atoll/testing/memory_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

using testing::HasSubstr;

TEST(NumLanesTest, GrowsWithTheRoundTripUnlessTheLineIsSlow) {
  const auto lanes = [](double rate, int round_trip_ms) {
    return num_lanes({rate, std::chrono::milliseconds(round_trip_ms)});
  };
  EXPECT_EQ(num_lanes({}), 1);
  EXPECT_EQ(lanes(1e9, 1), 1);
  EXPECT_EQ(lanes(2.5e3, 26'000), 1);
  EXPECT_EQ(lanes(1e5, 50), 2);
  EXPECT_EQ(lanes(60e6, 100), kMaxLanes);
  EXPECT_EQ(lanes(60e6, 10'000), kMaxLanes);
}

TEST(StripeFrameTest, TrailersComeOffAndNonsenseIsRefused) {
  Bytes frame(5, std::byte{7});
  const Bytes trailer = encode(StripeTrailer{StripeKind::kData, 1234567890123, 42});
  ASSERT_EQ(trailer.size(), kStripeTrailerBytes);
  frame.insert(frame.end(), trailer.begin(), trailer.end());
  const auto read = take_trailer(frame);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->number, 1234567890123U);
  EXPECT_EQ(read->arrived, 42U);
  EXPECT_EQ(frame, Bytes(5, std::byte{7}));
  EXPECT_FALSE(take_trailer(frame));
  Bytes unknown(kStripeTrailerBytes, std::byte{200});
  EXPECT_FALSE(take_trailer(unknown));
  EXPECT_FALSE(read_token(Bytes(15)));
  EXPECT_TRUE(read_token(Bytes(16)));
}

/// A striped transport over memory, what it saw, and all that came in under it.
struct Peer {
  Peer(MemoryNetwork& network, StripeOptions options)
      : transport(make_striped_transport(
            std::move(options),
            [&](Transport::Sink sink) {
              return network.make_transport([this, sink](Event event) {
                inner.sink()(event);
                sink(std::move(event));
              });
            },
            clock, recorder.sink())) {}

  SystemClock clock;
  Recorder inner;
  Recorder recorder;
  std::unique_ptr<Transport> transport;
};

struct StripedTest : testing::Test {
  static StripeOptions lanes(int count) {
    return {.num_lanes = [count](const LinkEstimate&) { return count; }};
  }
  explicit StripedTest(StripeOptions options = lanes(3), size_t queue_bytes = 20'000)
      : network(queue_bytes), server(network, options), client(network, options) {
    address = server.transport->listen("127.0.0.1:0").value();
    out = client.transport->connect(address, Plane::kBulk);
    EXPECT_EQ(client.recorder.wait_opened(false), out);
    in = server.recorder.wait_opened(true);
  }

  /// Numbered frames of all sizes, waiting while there is no room.
  static void send_all(Peer& peer, ConnectionId connection, uint32_t count) {
    for (uint32_t i = 0; i < count;) {
      const size_t writable = peer.recorder.count<Writable>(connection);
      const Sent sent = peer.transport->send(connection, numbered(i));
      ASSERT_NE(sent, Sent::kClosed);
      if (sent == Sent::kAccepted) {
        ++i;
      } else {
        ASSERT_TRUE(peer.recorder.wait([&](const std::vector<Event>& events) {
          size_t seen = 0;
          for (const Event& event : events) seen += std::holds_alternative<Writable>(event);
          return seen > writable;
        }));
      }
    }
  }
  static Bytes numbered(uint32_t number) {
    Bytes frame = ByteWriter().put(number).take();
    frame.resize(4 + number * 37 % 5'000, std::byte{3});
    return frame;
  }
  static void expect_in_order(Peer& peer, ConnectionId connection, uint32_t count) {
    const auto frames = peer.recorder.wait_frames(connection, count);
    ASSERT_EQ(frames.size(), count);
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(frames[i], numbered(i)) << i;
  }
  /// Connections under the client's transport that have opened on the plane.
  size_t num_open(Plane plane) {
    size_t count = 0;
    client.inner.wait([&](const std::vector<Event>& events) {
      count = 0;
      for (const Event& event : events) {
        const auto* opened = std::get_if<Opened>(&event);
        count += opened != nullptr && opened->plane == plane;
      }
      return true;
    });
    return count;
  }

  MemoryNetwork network;
  Peer server;
  Peer client;
  std::string address;
  ConnectionId out = 0;
  ConnectionId in = 0;
};

TEST_F(StripedTest, FramesKeepTheirOrderOverSeveralLanesBothWays) {
  constexpr uint32_t kCount = 2'000;
  {
    const std::jthread there([&] { send_all(client, out, kCount); });
    const std::jthread back([&] { send_all(server, in, kCount); });
  }
  expect_in_order(server, in, kCount);
  expect_in_order(client, out, kCount);
  EXPECT_EQ(num_open(Plane::kBulk), 1U);
  EXPECT_EQ(num_open(Plane::kLane), 2U);
  EXPECT_EQ(client.recorder.count<Opened>(out), 1U);
  EXPECT_GT(client.transport->estimate(out).bytes_per_second, 0);
  EXPECT_GT(client.transport->estimate(out).round_trip, Duration{});
  EXPECT_EQ(client.transport->estimate(999).bytes_per_second, 0);
}

TEST_F(StripedTest, CloseFlushesAllLanesAndBothSidesAreLostOnce) {
  send_all(client, out, 500);
  client.transport->close(out);
  EXPECT_EQ(client.transport->send(out, numbered(1)), Sent::kClosed);
  EXPECT_EQ(server.recorder.wait_lost(in), "closed by the other side");
  EXPECT_EQ(client.recorder.wait_lost(out), "closed by this side");
  expect_in_order(server, in, 500);
  EXPECT_EQ(server.recorder.count<Lost>(in), 1U);
  EXPECT_EQ(client.recorder.count<Lost>(out), 1U);
}

TEST_F(StripedTest, AnEndIsLostOnceWhicheverLaneSaysSoFirst) {
  send_all(client, out, 500);
  expect_in_order(server, in, 500);
  client.transport.reset();
  EXPECT_EQ(server.recorder.wait_lost(in), "closed by the other side");
  EXPECT_EQ(server.recorder.count<Lost>(in), 1U);
}

TEST_F(StripedTest, ControlPassesThroughOnAConnectionOfItsOwn) {
  const ConnectionId control = client.transport->connect(address, Plane::kControl);
  ASSERT_NE(server.recorder.wait_opened(true, Plane::kControl), 0U);
  const ConnectionId there = server.recorder.wait_opened(true, Plane::kControl);
  ASSERT_EQ(client.transport->send(control, numbered(7)), Sent::kAccepted);
  EXPECT_EQ(server.recorder.wait_frames(there, 1).front(), numbered(7));
  EXPECT_EQ(client.transport->estimate(control).bytes_per_second, 0);
  client.transport->close(control);
  EXPECT_EQ(server.recorder.wait_lost(there), "closed by the other side");
}

/// With a window of a few frames.
struct NarrowTest : StripedTest {
  NarrowTest() : StripedTest({.window_bytes = 20'000, .num_lanes = lanes(3).num_lanes}) {}
};

TEST_F(NarrowTest, ANarrowWindowSlowsDownAndLosesNothing) {
  send_all(client, out, 1'000);
  expect_in_order(server, in, 1'000);
  EXPECT_GT(client.recorder.count<Writable>(out), 0U);
}

/// What a stranger sends to a striped transport from a plain one.
struct StrangerTest : testing::Test {
  StrangerTest() : server(network, {}), stranger(network.make_transport(log.sink())) {
    address = server.transport->listen("127.0.0.1:0").value();
  }
  ConnectionId connect(Plane plane) {
    const ConnectionId connection = stranger->connect(address, plane);
    log.wait([&](const std::vector<Event>& events) {
      return std::ranges::any_of(events, [&](const Event& event) {
        const auto* opened = std::get_if<Opened>(&event);
        return opened != nullptr && opened->connection == connection;
      });
    });
    return connection;
  }
  void send(ConnectionId connection, StripeTrailer trailer, size_t size = 0) {
    const SharedFrame frame{.head = Bytes(size), .tail = encode(trailer)};
    EXPECT_NE(stranger->send_shared(connection, frame), Sent::kFull);
  }
  /// Why the server gave up a bulk connection after these.
  std::string reason_after(const std::vector<StripeTrailer>& trailers, size_t size = 0) {
    const ConnectionId connection = connect(Plane::kBulk);
    for (const StripeTrailer& trailer : trailers) send(connection, trailer, size);
    return server.recorder.wait_lost(server.recorder.wait_opened(true));
  }

  MemoryNetwork network{size_t{1} << 30};
  Peer server;
  Recorder log;
  std::unique_ptr<Transport> stranger;
  std::string address;
};

TEST_F(StrangerTest, WhatIsNoFrameEndsIt) {
  const ConnectionId connection = connect(Plane::kBulk);
  EXPECT_EQ(stranger->send(connection, Bytes(3)), Sent::kAccepted);
  EXPECT_THAT(server.recorder.wait_lost(server.recorder.wait_opened(true)),
              HasSubstr("no frame of a bulk connection"));
}

TEST_F(StrangerTest, AFrameThatComesTwiceEndsIt) {
  EXPECT_THAT(reason_after({{.number = 0}, {.number = 0}}), HasSubstr("sent frame 0 twice"));
}

TEST_F(StrangerTest, AFrameThatComesTwiceBeforeItsTurnEndsIt) {
  EXPECT_THAT(reason_after({{.number = 5}, {.number = 5}}), HasSubstr("sent frame 5 twice"));
}

TEST_F(StrangerTest, AConfirmationOfWhatWasNotSentEndsIt) {
  EXPECT_THAT(reason_after({{.kind = StripeKind::kAck, .arrived = 1}}), HasSubstr("was sent 0"));
}

TEST_F(StrangerTest, MemoryForFramesOutOfTurnIsBounded) {
  std::vector<StripeTrailer> trailers;
  for (uint64_t number = 1; number < 100; ++number) trailers.push_back({.number = number});
  EXPECT_THAT(reason_after(trailers, 1'000'000), HasSubstr("while 0 is missing"));
}

TEST_F(StrangerTest, TwoNamesOrAJoinInsideEndIt) {
  EXPECT_THAT(reason_after({{.kind = StripeKind::kToken}}, 3), HasSubstr("named"));
}

TEST_F(StrangerTest, ALaneOfNobodyIsClosedAndNeverSeen) {
  const ConnectionId lane = connect(Plane::kLane);
  send(lane, {.kind = StripeKind::kJoin}, 16);
  EXPECT_EQ(log.wait_lost(lane), "closed by the other side");
  EXPECT_EQ(server.recorder.wait([](const auto& events) { return !events.empty(); },
                                 std::chrono::milliseconds(1)),
            false);
}

}  // namespace
}  // namespace atl::net
