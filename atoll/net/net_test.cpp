// What needs no sockets: addresses, pacing, the logic of a connection, the in-memory transport.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "atoll/base/hash.h"
#include "atoll/net/address.h"
#include "atoll/net/connection.h"
#include "atoll/net/token_bucket.h"
#include "atoll/testing/memory_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(AddressTest, ReadsNamesAndBothKindsOfIp) {
  const auto v4 = parse_address("127.0.0.1:80");
  ASSERT_TRUE(v4);
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 80);
  const auto v6 = parse_address("[::1]:0");
  ASSERT_TRUE(v6);
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->text(), "[::1]:0");
  EXPECT_EQ(parse_address("node-3.example:65535")->text(), "node-3.example:65535");
}

TEST(AddressTest, ErrorsNameTheText) {
  for (const char* bad : {"", "host", "host:", ":80", "host:65536", "host:-1", "host:8x", "::1:80",
                          "[::1:80", "[host]:80", "[]:80", "a b:80", "http://a:80", "a:80 "}) {
    const auto address = parse_address(bad);
    ASSERT_FALSE(address) << bad;
    EXPECT_THAT(address.error().message, HasSubstr(fmt::format("'{}'", bad)));
  }
}

TEST(AddressTest, ASchemeIsNamed) {
  EXPECT_THAT(parse_address("http://127.0.0.1:80").error().message, HasSubstr("leave 'http://'"));
}

TEST(AddressTest, OnlyLoopbackMayBeUnencrypted) {
  for (const char* fine : {"127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(check_address(fine, /*insecure=*/false)) << fine;
  }
  for (const char* open : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.com:1", "128.0.0.1:1",
                           "[::ffff:10.0.0.1]:1", "127.0.0.1.example.com:1", "localhost.evil:1"}) {
    const auto refused = check_address(open, /*insecure=*/false);
    ASSERT_FALSE(refused) << open;
    EXPECT_THAT(refused.error().message, HasSubstr("--insecure"));
    EXPECT_TRUE(check_address(open, /*insecure=*/true)) << open;
  }
}

TEST(TokenBucketTest, WaitsUntilTheDebtIsPaid) {
  Time now{};
  TokenBucket bucket(1000, 100, now);  // A byte a millisecond.
  EXPECT_EQ(bucket.wait(now), Duration{});
  bucket.take(now, 600);
  EXPECT_EQ(bucket.wait(now), milliseconds(500));
  EXPECT_EQ(bucket.wait(now, 200), milliseconds(300));
  now += milliseconds(499);
  EXPECT_EQ(bucket.wait(now), milliseconds(1));
  now += milliseconds(1);
  EXPECT_EQ(bucket.wait(now), Duration{});
  now += seconds(100);  // Idle: saves up the burst, no more.
  bucket.take(now, 300);
  EXPECT_EQ(bucket.wait(now), milliseconds(200));
  EXPECT_EQ(bucket.wait(now - seconds(50)), milliseconds(200))
      << "time that goes back gains nothing";
}

TEST(TokenBucketTest, WhatIsGivenBackDoesNotOverflow) {
  Time now{};
  TokenBucket bucket(1000, 100, now);
  bucket.take(now, 80);
  bucket.give_back(now, 50);
  EXPECT_EQ(bucket.wait(now, -70), Duration{});
  EXPECT_EQ(bucket.wait(now, -71), std::chrono::milliseconds(1));
  bucket.give_back(now, 1000);
  EXPECT_EQ(bucket.wait(now, -100), Duration{});
  EXPECT_EQ(bucket.wait(now, -101), std::chrono::milliseconds(1));
}

TEST(TokenBucketTest, LongRunKeepsTheRate) {
  Time now{};
  TokenBucket bucket(2.5e6, 50'000, now);
  int64_t sent = 0;
  while (now < Time(seconds(10))) {
    now += bucket.wait(now) + milliseconds(3);  // A late waker loses nothing within the burst.
    bucket.take(now, 65'536);
    sent += 65'536;
  }
  EXPECT_NEAR(static_cast<double>(sent), 25e6, 0.2e6);
}

TEST(PacerTest, ControlGoesBeforeBulkThatWaitedLonger) {
  const SystemClock clock;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> order;
  const auto note = [&](const char* name) {
    return [&, name] {
      const std::lock_guard lock(mutex);
      order.emplace_back(name);
      changed.notify_all();
    };
  };
  Pacer pacer(8e5, clock);  // 100 kB a second.
  pacer.request_turn(Plane::kBulk, 20'000, note("bulk 1"));
  pacer.request_turn(Plane::kBulk, 20'000, note("bulk 2"));
  pacer.request_turn(Plane::kBulk, 20'000, note("bulk 3"));
  pacer.request_turn(Plane::kControl, 100, note("control"));
  pacer.call_after(seconds(60), note("never"));
  pacer.call_after(milliseconds(1), note("timer"));
  std::unique_lock lock(mutex);
  ASSERT_TRUE(changed.wait_for(lock, seconds(20), [&] { return order.size() == 5; }));
  const auto place = [&](const char* name) { return std::ranges::find(order, name); };
  EXPECT_LT(place("control"), place("bulk 2"));
  EXPECT_LT(place("timer"), place("bulk 3"));
  EXPECT_LT(place("bulk 2"), place("bulk 3"));
}

/// A connection whose pieces go nowhere.
class FakeConnection final : public Connection {
 public:
  explicit FakeConnection(std::shared_ptr<ConnectionContext> context)
      : Connection(7, Plane::kBulk, "there", std::move(context)) {}
  using Connection::on_opened;
  using Connection::on_piece;
  using Connection::on_written;
  size_t num_written() {
    const std::lock_guard lock(mutex);
    return written.size();
  }
  int num_ends = 0;
  std::mutex mutex;
  std::vector<std::string> written;

 private:
  void write(const OutPiece& piece) override {
    const std::lock_guard lock(mutex);
    written.push_back(fmt::format("{}{}{}", piece.size, piece.last ? " last" : "",
                                  piece.goodbye ? " goodbye" : ""));
  }
  void end_call() override { ++num_ends; }
};

struct ConnectionTest : testing::Test {
  explicit ConnectionTest(double rate = 0, size_t queue_bytes = 200'000)
      : context(std::make_shared<ConnectionContext>(recorder.sink(), rate, clock, queue_bytes,
                                                    queue_bytes, /*overhead=*/0)) {
    connection->on_opened(/*inbound=*/false, /*certificate=*/{});
  }
  std::string lost() { return recorder.wait_lost(7); }
  Connection::Piece piece(std::span<const std::byte> data) {
    return {.data = Bytes(data.begin(), data.end()),
            .last = true,
            .checksum = xxh3(data.data(), data.size())};
  }

  SystemClock clock;
  Recorder recorder;
  std::shared_ptr<ConnectionContext> context;
  std::shared_ptr<FakeConnection> connection = std::make_shared<FakeConnection>(context);
};

/// With room for two million bytes.
struct LongQueueTest : ConnectionTest {
  LongQueueTest() : ConnectionTest(0, 2'000'000) {}
};

TEST_F(LongQueueTest, CutsFramesAndWritesOnePieceAtATime) {
  EXPECT_EQ(connection->send(Bytes(1'500'000)), Sent::kAccepted);
  EXPECT_EQ(connection->send(Bytes(0)), Sent::kAccepted);
  EXPECT_EQ(connection->send(Bytes(600'000)), Sent::kFull);
  connection->close();
  EXPECT_EQ(connection->send(Bytes(1)), Sent::kClosed);
  for (int i = 0; i < 4; ++i) connection->on_written(true);
  EXPECT_THAT(connection->written,
              ElementsAre("524288", "524288", "451424 last", "0 last", "0 goodbye"));
  connection->on_written(true);
  EXPECT_EQ(connection->written.size(), 5U);
}

/// Paced, but so fast that no turn has to be waited for long.
struct PacedConnectionTest : ConnectionTest {
  PacedConnectionTest() : ConnectionTest(1e12) {}
  ~PacedConnectionTest() override { context->pacer.stop(); }  // It may hold the connection.
  /// Waits for piece number `count`, then lets it be written.
  void write(size_t count) {
    while (connection->num_written() < count) std::this_thread::yield();
    connection->on_written(true);
  }
};

TEST_F(PacedConnectionTest, PiecesAreSmallAndWritableComesOnceHalfOfTheQueueIsFree) {
  EXPECT_EQ(connection->send(Bytes(200'000)), Sent::kAccepted);
  EXPECT_EQ(connection->send(Bytes(1)), Sent::kFull);
  write(1);
  EXPECT_EQ(recorder.count<Writable>(7), 0U);
  write(2);
  EXPECT_EQ(recorder.count<Writable>(7), 1U);
  write(3);
  EXPECT_EQ(recorder.count<Writable>(7), 1U);
  EXPECT_EQ(connection->written.front(), "65536");
}

TEST_F(ConnectionTest, JoinsPiecesAndChecksTheSum) {
  const Bytes frame(100'000, std::byte{5});
  const auto whole = piece(frame);
  const auto middle = whole.data.begin() + 65'536;
  connection->on_piece({.data = Bytes(whole.data.begin(), middle)});
  connection->on_piece(
      {.data = Bytes(middle, whole.data.end()), .last = true, .checksum = whole.checksum});
  connection->on_piece(piece({}));
  const auto frames = recorder.wait_frames(7, 2);
  ASSERT_EQ(frames.size(), 2U);
  EXPECT_EQ(frames[0], frame);
  auto wrong = piece(std::span(frame).first(10));
  wrong.checksum ^= 1;
  connection->on_piece(wrong);
  EXPECT_EQ(lost(), "there sent a frame of 10 bytes with a wrong checksum");
  connection->on_piece(whole);  // Nothing comes after Lost.
  connection->end("again");
  EXPECT_EQ(recorder.count<Received>(7), 2U);
  EXPECT_EQ(recorder.count<Lost>(7), 1U);
  EXPECT_EQ(connection->num_ends, 1);
}

TEST_F(ConnectionTest, FramesBeyondTheLimitEndIt) {
  const Bytes data(65'536);
  for (size_t i = 0; i < kMaxFrameBytes / data.size(); ++i) connection->on_piece({.data = data});
  EXPECT_EQ(recorder.count<Lost>(7), 0U);
  connection->on_piece(piece(std::span(data).first(kStripeTrailerBytes + 1)));
  EXPECT_THAT(lost(), HasSubstr("a frame of more than"));
}

TEST_F(ConnectionTest, EmptyPiecesForEverEndIt) {
  connection->on_piece({});
  EXPECT_THAT(lost(), HasSubstr("an empty piece"));
}

TEST_F(ConnectionTest, GoodbyeEndsIt) {
  connection->on_piece({.goodbye = true});
  EXPECT_EQ(lost(), "closed by the other side");
  EXPECT_EQ(connection->send(Bytes{}), Sent::kClosed);
}

/// Two transports over memory, connected.
struct MemoryPair {
  explicit MemoryPair(size_t queue_bytes = size_t{4} << 20)
      : network(queue_bytes),
        server(network.make_transport(server_log.sink())),
        client(network.make_transport(client_log.sink())) {
    out = client->connect(server->listen("127.0.0.1:0").value(), Plane::kBulk);
    EXPECT_EQ(client_log.wait_opened(false), out);
    in = server_log.wait_opened(true);
  }
  MemoryNetwork network;
  Recorder server_log;
  Recorder client_log;
  std::unique_ptr<Transport> server;
  std::unique_ptr<Transport> client;
  ConnectionId out = 0;
  ConnectionId in = 0;
};

Bytes numbered(int number) { return ByteWriter().put(number).take(); }

TEST(MemoryTransportTest, ManyThreadsSendBothWaysInOrder) {
  MemoryPair pair;
  constexpr int kCount = 2'000;
  const auto send_all = [](Transport& transport, ConnectionId connection) {
    for (int i = 0; i < kCount; ++i) {
      ASSERT_EQ(transport.send(connection, numbered(i)), Sent::kAccepted);
    }
  };
  {
    const std::jthread there([&] { send_all(*pair.client, pair.out); });
    const std::jthread back([&] { send_all(*pair.server, pair.in); });
  }
  for (auto [log, connection] :
       {std::pair(&pair.server_log, pair.in), std::pair(&pair.client_log, pair.out)}) {
    const auto frames = log->wait_frames(connection, kCount);
    ASSERT_EQ(frames.size(), size_t{kCount});
    for (int i = 0; i < kCount; ++i) ASSERT_EQ(frames[static_cast<size_t>(i)], numbered(i));
  }
  EXPECT_EQ(pair.client->traffic().bytes_sent, 4 * kCount);
  EXPECT_EQ(pair.client->traffic().bytes_received, 4 * kCount);
}

TEST(MemoryTransportTest, CloseFlushesAndBothSidesAreLostOnce) {
  MemoryPair pair;
  ASSERT_EQ(pair.client->send(pair.out, numbered(1)), Sent::kAccepted);
  pair.client->close(pair.out);
  EXPECT_EQ(pair.client->send(pair.out, numbered(2)), Sent::kClosed);
  EXPECT_EQ(pair.server_log.wait_lost(pair.in), "closed by the other side");
  EXPECT_EQ(pair.client_log.wait_lost(pair.out), "closed by this side");
  EXPECT_EQ(pair.server_log.count<Received>(pair.in), 1U);
  EXPECT_EQ(pair.server->send(pair.in, numbered(3)), Sent::kClosed);
}

TEST(MemoryTransportTest, DestroyedAndCrashedTransportsAreLost) {
  MemoryPair destroyed;
  ASSERT_EQ(destroyed.client->send(destroyed.out, numbered(1)), Sent::kAccepted);
  destroyed.client.reset();
  EXPECT_EQ(destroyed.server_log.wait_lost(destroyed.in), "closed by the other side");
  EXPECT_EQ(destroyed.server_log.count<Received>(destroyed.in), 1U);
  MemoryPair crashed;
  crashed.network.crash(*crashed.server);
  EXPECT_EQ(crashed.client_log.wait_lost(crashed.out), "connection reset");
  EXPECT_EQ(crashed.client->send(crashed.out, numbered(1)), Sent::kClosed);
}

TEST(MemoryTransportTest, FullQueueRefusesThenReportsWritable) {
  MemoryPair pair(10'000);
  int num_accepted = 0;
  int num_full = 0;
  while (num_accepted < 200) {
    switch (pair.client->send(pair.out, Bytes(4'000))) {
      case Sent::kAccepted:
        ++num_accepted;
        break;
      case Sent::kFull:
        ++num_full;
        ASSERT_TRUE(pair.client_log.wait([&](const std::vector<Event>& events) {
          int num_writable = 0;
          for (const Event& event : events) num_writable += std::holds_alternative<Writable>(event);
          return num_writable >= num_full;
        }));
        break;
      case Sent::kClosed:
        FAIL();
    }
  }
  EXPECT_EQ(pair.server_log.wait_frames(pair.in, 200).size(), 200U);
}

TEST(MemoryTransportTest, RefusesBadAddressesAndPortsInUse) {
  MemoryPair pair;
  const std::string address = pair.server->listen("x:9").value();
  EXPECT_EQ(address, "x:9");
  EXPECT_THAT(pair.client->listen("x:9").error().message, HasSubstr("already in use"));
  const ConnectionId refused = pair.client->connect("x:8", Plane::kControl);
  EXPECT_EQ(pair.client_log.wait_lost(refused), "cannot connect to x:8: connection refused");
  const ConnectionId bad = pair.client->connect("x", Plane::kControl);
  EXPECT_THAT(pair.client_log.wait_lost(bad), HasSubstr("not an address: 'x'"));
}

}  // namespace
}  // namespace atl::net
