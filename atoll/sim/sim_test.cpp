#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/random.h"
#include "atoll/sim/sim_transport.h"

namespace atl::sim {
namespace {

using net::ConnectionId;
using net::Plane;
using net::Sent;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Bytes bytes(std::string_view text) {
  const auto span = as_byte_span(text);
  return {span.begin(), span.end()};
}

/// A process that writes down what it sees.
struct Process {
  Process(SimNetwork& network, const std::string& host)
      : transport(network.make_transport(host, [this, &network](net::Event event) {
          note(std::move(event), network.queue().now());
        })) {}

  void note(net::Event event, Time now) {
    const auto at = std::chrono::duration_cast<milliseconds>(now.time_since_epoch()).count();
    if (const auto* opened = std::get_if<net::Opened>(&event)) {
      (opened->inbound ? inbound : outbound) = opened->connection;
      log.push_back(fmt::format("{} opened {}", at, opened->remote));
      ways.push_back(opened->way);
    } else if (auto* received = std::get_if<net::Received>(&event)) {
      const auto* text = reinterpret_cast<const char*>(received->frame.data());
      log.push_back(fmt::format("{} got {}", at, std::string(text, received->frame.size())));
    } else if (const auto* lost = std::get_if<net::Lost>(&event)) {
      ++num_lost;
      log.push_back(fmt::format("{} lost {}", at, lost->reason));
    } else {
      log.push_back(fmt::format("{} writable", at));
    }
  }

  ConnectionId inbound = 0;
  ConnectionId outbound = 0;
  int num_lost = 0;
  std::vector<net::Way> ways;
  std::vector<std::string> log;
  std::unique_ptr<net::Transport> transport;
};

/// Hosts a (which connects) and b (which listens), 10 ms apart.
struct Pair {
  explicit Pair(SimOptions options = {.link = {.latency = milliseconds(10)}})
      : network(options), a(network, "a"), b(network, "b") {
    EXPECT_EQ(b.transport->listen("127.0.0.1:7").value(), "b:7");
    connection = a.transport->connect("b:7", Plane::kBulk);
    network.queue().run_for(milliseconds(20));
    EXPECT_EQ(a.outbound, connection);
    EXPECT_NE(b.inbound, 0U);
    a.log.clear();
    b.log.clear();
  }
  void send(std::string_view text) {
    ASSERT_EQ(a.transport->send(connection, bytes(text)), Sent::kAccepted);
  }
  void run_for(Duration duration) { network.queue().run_for(duration); }

  SimNetwork network;
  Process a;
  Process b;
  ConnectionId connection = 0;
};

TEST(EventQueueTest, RunsInOrderOfTimeThenOfAddition) {
  EventQueue queue;
  std::string order;
  queue.after(milliseconds(2), [&] { order += 'c'; });
  queue.after(milliseconds(1), [&] {
    order += 'a';
    queue.after({}, [&] { order += 'b'; });
  });
  queue.after(milliseconds(2), [&] { order += 'd'; });
  EXPECT_FALSE(queue.run_until([&] { return order == "abcd!"; }, seconds(1)));
  EXPECT_EQ(order, "abcd");
  queue.run_until(Time(seconds(3)));
  EXPECT_EQ(queue.now(), Time(seconds(3)));
}

TEST(SimTransportTest, OpensAfterARoundTripAndKeepsOrderBothWays) {
  SimNetwork network({.link = {.latency = milliseconds(10)}});
  Process a(network, "a");
  Process b(network, "b");
  ASSERT_TRUE(b.transport->listen("b:7"));
  const ConnectionId connection = a.transport->connect("b:7", Plane::kControl);
  EXPECT_EQ(a.transport->send(connection, bytes("early")), Sent::kAccepted);
  network.queue().run_for(milliseconds(25));
  EXPECT_EQ(b.transport->send(b.inbound, bytes("back")), Sent::kAccepted);
  network.queue().run_for(milliseconds(100));
  EXPECT_THAT(a.log, ElementsAre("20 opened b:7", "35 got back"));
  EXPECT_THAT(b.log, ElementsAre("10 opened a", "30 got early"));
}

TEST(SimTransportTest, RefusesAndTimesOut) {
  SimNetwork network({});
  Process a(network, "a");
  Process b(network, "b");
  a.transport->connect("b:7", Plane::kControl);
  a.transport->connect("nonsense", Plane::kControl);
  network.queue().run_for(seconds(1));
  EXPECT_THAT(a.log, ElementsAre(HasSubstr("0 lost not an address: 'nonsense'"),
                                 "2 lost cannot connect to b:7: connection refused"));
  network.cut("a", "b");
  a.transport->connect("b:7", Plane::kControl);
  network.queue().run_for(seconds(10));
  EXPECT_EQ(a.log.back(), "6000 lost cannot connect to b:7: no answer");
  ASSERT_TRUE(b.transport->listen("b:9"));
  EXPECT_THAT(b.transport->listen("b:9").error().message, HasSubstr("already in use"));
}

TEST(SimTransportTest, BandwidthDelaysBulkButNotControl) {
  Pair pair({.link = {.latency = milliseconds(10), .bits_per_second = 8e6}});  // 1 kB a ms.
  const ConnectionId control = pair.a.transport->connect("b:7", Plane::kControl);
  pair.run_for(milliseconds(20));
  pair.b.log.clear();
  pair.send(std::string(100'000, 'x'));
  ASSERT_EQ(pair.a.transport->send(control, bytes("quick")), Sent::kAccepted);
  pair.run_for(seconds(1));
  ASSERT_EQ(pair.b.log.size(), 2U);
  EXPECT_EQ(pair.b.log[0], "50 got quick");
  EXPECT_THAT(pair.b.log[1], HasSubstr("150 got xxx"));
  EXPECT_EQ(pair.a.transport->traffic().bytes_sent, 100'005);
  EXPECT_EQ(pair.b.transport->traffic().bytes_received, 100'005);
}

TEST(SimTransportTest, ShowsWhatABulkConnectionCarries) {
  Pair pair({.link = {.latency = milliseconds(10), .bits_per_second = 8e6}});
  EXPECT_EQ(pair.a.transport->estimate(pair.connection).bytes_per_second, 0);
  EXPECT_EQ(pair.a.transport->send(pair.connection, Bytes(100)), Sent::kAccepted);
  pair.network.queue().run_for(seconds(1));
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(pair.a.transport->send(pair.connection, Bytes(100'000)), Sent::kAccepted);
  }
  pair.network.queue().run_for(seconds(10));
  const net::LinkEstimate estimate = pair.a.transport->estimate(pair.connection);
  EXPECT_NEAR(estimate.bytes_per_second, 1e6, 1.2e5);
  EXPECT_NEAR(atl::seconds(estimate.round_trip), 0.02, 0.002);
  EXPECT_EQ(pair.b.transport->estimate(pair.b.inbound).bytes_per_second, 0);
}

TEST(SimTransportTest, FullQueueRefusesThenReportsWritable) {
  Pair pair({.link = {.latency = milliseconds(10), .bits_per_second = 8e6}, .queue_bytes = 10'000});
  pair.send(std::string(10'000, 'x'));
  EXPECT_EQ(pair.a.transport->send(pair.connection, bytes("y")), Sent::kFull);
  pair.run_for(milliseconds(9));
  EXPECT_THAT(pair.a.log, IsEmpty());
  pair.run_for(milliseconds(1));
  EXPECT_THAT(pair.a.log, ElementsAre("30 writable"));
  EXPECT_EQ(pair.a.transport->send(pair.connection, bytes("y")), Sent::kAccepted);
}

TEST(SimTransportTest, CloseFlushesThenBothSidesSeeLost) {
  Pair pair;
  pair.send("one");
  pair.send("two");
  pair.a.transport->close(pair.connection);
  EXPECT_EQ(pair.a.transport->send(pair.connection, bytes("three")), Sent::kClosed);
  pair.run_for(seconds(5));
  EXPECT_THAT(pair.b.log, ElementsAre("30 got one", "30 got two", "30 lost closed by a"));
  EXPECT_THAT(pair.a.log, ElementsAre("40 lost closed by this side"));
}

TEST(SimTransportTest, DestroyingATransportFlushesToo) {
  Pair pair;
  pair.send("last words");
  pair.a.transport.reset();
  pair.run_for(seconds(5));
  EXPECT_THAT(pair.b.log, ElementsAre("30 got last words", "30 lost closed by a"));
  EXPECT_THAT(pair.a.log, IsEmpty());
}

TEST(SimTransportTest, CrashIsSeenByPeersAfterTheLatency) {
  Pair pair({.link = {.latency = milliseconds(10), .bits_per_second = 8e6}});
  pair.send("gone out");
  pair.send(std::string(500'000, 'x'));  // Half a second: it never leaves.
  pair.run_for(milliseconds(15));
  pair.network.crash("a");
  EXPECT_EQ(pair.a.transport->send(pair.connection, bytes("ghost")), Sent::kClosed);
  pair.run_for(seconds(5));
  EXPECT_THAT(pair.b.log, ElementsAre("30 got gone out", "45 lost connection to a reset"));
  EXPECT_THAT(pair.a.log, IsEmpty());
  Process reborn(pair.network, "a");
  reborn.transport->connect("b:7", Plane::kControl);
  pair.run_for(milliseconds(20));
  EXPECT_EQ(reborn.log.size(), 1U);
}

TEST(SimTransportTest, ShortCutDelaysLongCutLoses) {
  Pair pair;
  pair.network.cut_one_way("a", "b");
  pair.send("one");
  pair.send("two");
  ASSERT_EQ(pair.b.transport->send(pair.b.inbound, bytes("still")), Sent::kAccepted);
  pair.run_for(seconds(10));
  EXPECT_THAT(pair.a.log, ElementsAre("30 got still"));
  EXPECT_THAT(pair.b.log, IsEmpty());
  pair.network.heal("a", "b");
  pair.run_for(seconds(15));  // Past the keepalive of the healed cut.
  EXPECT_THAT(pair.b.log, ElementsAre("10030 got one", "10030 got two"));
  pair.network.cut("a", "b");
  pair.send("never");
  pair.run_for(seconds(19));
  EXPECT_EQ(pair.a.num_lost + pair.b.num_lost, 0);
  pair.run_for(seconds(2));
  EXPECT_EQ(pair.a.log.back(), "45020 lost b no longer answers");
  EXPECT_EQ(pair.b.log.back(), "45020 lost a no longer answers");
  pair.network.heal("a", "b");
  pair.run_for(seconds(60));
  EXPECT_EQ(pair.b.log.size(), 3U);
}

TEST(SimTransportTest, WhatWaitedBehindACutArrivesBeforeWhatWasSentLater) {
  Pair pair;
  pair.network.cut_one_way("a", "b");
  pair.send("one");
  pair.run_for(milliseconds(14));
  pair.send("two");  // Would arrive while the first is on its way again.
  pair.run_for(milliseconds(1));
  pair.network.heal("a", "b");
  pair.run_for(seconds(1));
  EXPECT_THAT(pair.b.log, ElementsAre("45 got one", "45 got two"));
}

TEST(SimTransportTest, BrokenConnectionIsLostOnceOnBothSides) {
  Pair pair;
  pair.send("lost on the way");
  pair.network.break_connections("a", "b");
  pair.run_for(seconds(60));
  EXPECT_THAT(pair.a.log, ElementsAre("20 lost connection to b reset"));
  EXPECT_THAT(pair.b.log, ElementsAre("20 lost connection to a reset"));
}

TEST(SimTransportTest, TamperChangesFrames) {
  Pair pair;
  pair.network.set_tamper([](const std::string& from, const std::string& to, Bytes& frame) {
    EXPECT_EQ(from + to, "ab");
    frame[0] = std::byte{'X'};
  });
  pair.send("good");
  pair.run_for(seconds(1));
  EXPECT_THAT(pair.b.log, ElementsAre("30 got Xood"));
}

/// Everything that three hosts see while they talk, break and crash.
std::vector<std::string> stormy_trace(uint64_t seed) {
  SimNetwork network({.seed = seed,
                      .link = {.latency = milliseconds(5),
                               .jitter = milliseconds(30),
                               .bits_per_second = 1e6,
                               .break_chance = 0.005}});
  Process a(network, "a");
  Process b(network, "b");
  Process c(network, "c");
  EXPECT_TRUE(c.transport->listen("c:1"));
  std::vector<ConnectionId> connections;
  for (int i = 0; i < 200; ++i) {
    if (i % 20 == 0) {
      connections.push_back(a.transport->connect("c:1", Plane::kBulk));
      connections.push_back(b.transport->connect("c:1", Plane::kControl));
    }
    const uint64_t choice = random_bits(seed, 1, static_cast<uint64_t>(i)) % connections.size();
    auto& sender = choice % 2 == 0 ? a : b;
    static_cast<void>(sender.transport->send(connections[choice], bytes(fmt::format("{}", i))));
    network.queue().run_for(milliseconds(3));
    if (i == 100) network.cut("a", "c");
    if (i == 130) network.heal("a", "c");
    if (i == 180) network.crash("b");
  }
  network.queue().run_for(seconds(60));
  std::vector<std::string> trace = a.log;
  trace.insert(trace.end(), b.log.begin(), b.log.end());
  trace.insert(trace.end(), c.log.begin(), c.log.end());
  return trace;
}

TEST(SimTransportTest, SameSeedSameTrace) {
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(stormy_trace(seed), stormy_trace(seed));
  EXPECT_NE(stormy_trace(1), stormy_trace(2));
}

TEST(SimTransportTest, JitterReordersBetweenConnectionsNeverWithinOne) {
  int num_reordered = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SimNetwork network({.seed = seed, .link = {.jitter = milliseconds(50)}});
    Process a(network, "a");
    Process b(network, "b");
    ASSERT_TRUE(b.transport->listen("b:1"));
    const ConnectionId first = a.transport->connect("b:1", Plane::kControl);
    const ConnectionId second = a.transport->connect("b:1", Plane::kControl);
    network.queue().run_for(seconds(1));
    b.log.clear();
    for (const char* text : {"1", "2", "3"}) {
      EXPECT_EQ(a.transport->send(first, bytes(text)), Sent::kAccepted);
    }
    EXPECT_EQ(a.transport->send(second, bytes("other")), Sent::kAccepted);
    network.queue().run_for(seconds(1));
    std::string order;
    for (const std::string& line : b.log) order += line.substr(line.find("got ") + 4);
    num_reordered += order != "123other";
    const size_t other = order.find("other");
    ASSERT_NE(other, std::string::npos);
    EXPECT_EQ(order.erase(other, 5), "123");
  }
  EXPECT_GT(num_reordered, 10);
}

struct MeetingWorld {
  MeetingWorld() : relay(network, "r"), a(network, "a"), b(network, "b") {
    EXPECT_EQ(relay.transport->listen("127.0.0.1:7").value(), "r:7");
    network.set_link("a", "r", {.latency = milliseconds(20), .bits_per_second = 8e6});
    network.set_link("b", "r", {.latency = milliseconds(30), .bits_per_second = 4e6});
  }
  void meet(bool may_punch = true) {
    const net::Meeting meeting{.relay = "r:7", .circuit = {std::byte{1}}, .may_punch = may_punch};
    net::Meeting calling = meeting;
    calling.calls = true;
    at_a = a.transport->meet(calling, Plane::kBulk);
    at_b = b.transport->meet(meeting, Plane::kBulk);
  }
  void run(milliseconds time) { network.queue().run_for(time); }

  SimNetwork network{{.link = {.latency = milliseconds(10)}}};
  Process relay;
  Process a;
  Process b;
  ConnectionId at_a = 0;
  ConnectionId at_b = 0;
};

TEST(SimMeetingTest, TwoMeetDirectlyWhereTheyCan) {
  MeetingWorld world;
  world.meet();
  ASSERT_EQ(world.a.transport->send(world.at_a, bytes("early")), Sent::kAccepted);
  world.run(seconds(1));
  EXPECT_EQ(world.a.outbound, world.at_a);
  EXPECT_EQ(world.b.inbound, world.at_b);
  EXPECT_THAT(world.a.ways, ElementsAre(net::Way::kPunched));
  EXPECT_THAT(world.a.log, ElementsAre("70 opened b"));
  EXPECT_THAT(world.b.log, ElementsAre("60 opened a", "80 got early"));
}

TEST(SimMeetingTest, ElseTheRelayPassesOnWhatTheySayAtTheSlowerRate) {
  MeetingWorld world;
  world.network.cut("a", "b");
  world.meet();
  world.run(seconds(1));
  EXPECT_THAT(world.b.ways, ElementsAre(net::Way::kRelayed));
  EXPECT_THAT(world.a.log, ElementsAre("110 opened b through r:7"));
  EXPECT_THAT(world.b.log, ElementsAre("60 opened a through r:7"));
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(world.a.transport->send(world.at_a, Bytes(500'000, std::byte{'x'})), Sent::kAccepted);
  }
  world.run(seconds(10));
  ASSERT_EQ(world.b.log.size(), 3U);  // Half a second on the first link, two on the second.
  EXPECT_THAT(world.b.log[2], testing::StartsWith("3550 got"));
  world.b.transport->close(world.at_b);
  world.run(seconds(1));
  EXPECT_THAT(world.a.log.back(), HasSubstr("lost closed by b"));
  EXPECT_EQ(world.b.num_lost, 1);
}

TEST(SimMeetingTest, NobodyAndNothingIsToldApart) {
  MeetingWorld world;
  world.at_a = world.a.transport->meet({.relay = "r:7"}, Plane::kBulk);
  world.b.transport->meet({.relay = "r:8"}, Plane::kBulk);
  world.run(seconds(10));
  EXPECT_THAT(world.a.log,
              ElementsAre("5000 lost cannot meet at r:7: the other side did not come"));
  EXPECT_THAT(world.b.log, ElementsAre("60 lost cannot meet at r:8: connection refused"));
}

TEST(SimMeetingTest, ARelayThatDiesOrIsCutOffIsLostAtBothEnds) {
  for (const bool dies : {true, false}) {
    MeetingWorld world;
    world.meet(/*may_punch=*/false);
    world.run(seconds(1));
    EXPECT_THAT(world.a.ways, ElementsAre(net::Way::kRelayed));
    if (dies) {
      world.network.crash("r");
    } else {
      world.network.cut("b", "r");
    }
    world.run(seconds(30));
    EXPECT_EQ(world.a.num_lost, 1);
    EXPECT_EQ(world.b.num_lost, 1);
  }
}

TEST(SimMeetingTest, AShortCutOnTheWayToTheRelayDelays) {
  MeetingWorld world;
  world.meet(/*may_punch=*/false);
  world.run(seconds(1));
  world.network.cut("b", "r");
  ASSERT_EQ(world.a.transport->send(world.at_a, bytes("late")), Sent::kAccepted);
  world.run(seconds(2));
  EXPECT_EQ(world.b.log.size(), 1U);
  world.network.heal("b", "r");
  world.run(seconds(1));
  EXPECT_THAT(world.b.log.back(), HasSubstr("got late"));
  world.network.break_connections("r", "a");
  world.run(seconds(1));
  EXPECT_EQ(world.a.num_lost, 1);
  EXPECT_EQ(world.b.num_lost, 1);
}

}  // namespace
}  // namespace atl::sim
