// Over loopback, real sockets, in the clear.
#include "atoll/net/tcp_transport.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "atoll/base/random.h"
#include "atoll/net/address.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Bytes frame_of(size_t size, uint64_t seed = 0) {
  Bytes frame(size);
  for (size_t i = 0; i < size; ++i) frame[i] = static_cast<std::byte>(random_bits(seed, 0, i));
  return frame;
}

/// A transport and what it saw.
struct Peer {
  explicit Peer(TransportOptions options = {})
      : transport(make_tcp_transport(options, clock, recorder.sink())) {}
  std::string listen() { return transport->listen("127.0.0.1:0").value(); }

  SystemClock clock;
  Recorder recorder;
  std::unique_ptr<Transport> transport;
};

/// Two peers with an open connection.
struct Connected {
  explicit Connected(TransportOptions client_options = {}, TransportOptions server_options = {},
                     Plane plane = Plane::kBulk)
      : server(server_options), client(client_options) {
    out = client.transport->connect(server.listen(), plane);
    EXPECT_EQ(client.recorder.wait_opened(false, plane), out);
    in = server.recorder.wait_opened(true, plane);
    EXPECT_NE(in, 0U);
  }
  Peer server;
  Peer client;
  ConnectionId out = 0;
  ConnectionId in = 0;
};

/// Sends, waiting while the queue is full.
bool send_all(Peer& peer, ConnectionId connection, const Bytes& frame) {
  const size_t writable = peer.recorder.count<Writable>(connection);
  switch (peer.transport->send(connection, frame)) {
    case Sent::kAccepted:
      return true;
    case Sent::kClosed:
      return false;
    case Sent::kFull:
      break;
  }
  peer.recorder.wait([&](const std::vector<Event>& events) {
    size_t count = 0;
    for (const Event& event : events) count += std::holds_alternative<Writable>(event);
    return count > writable;
  });
  return send_all(peer, connection, frame);
}

TEST(TcpTransportTest, FramesOfAllSizesArriveInOrderBothWays) {
  Connected pair;
  const std::vector<size_t> sizes = {0, 1, 65'535, 65'536, 65'537, 300'000, kMaxFrameBytes};
  for (const size_t size : sizes) {
    ASSERT_TRUE(send_all(pair.client, pair.out, frame_of(size, 1)));
    ASSERT_TRUE(send_all(pair.server, pair.in, frame_of(size, 2)));
  }
  const auto at_server = pair.server.recorder.wait_frames(pair.in, sizes.size());
  const auto at_client = pair.client.recorder.wait_frames(pair.out, sizes.size());
  ASSERT_EQ(at_server.size(), sizes.size());
  ASSERT_EQ(at_client.size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_TRUE(at_server[i] == frame_of(sizes[i], 1)) << sizes[i];
    EXPECT_TRUE(at_client[i] == frame_of(sizes[i], 2)) << sizes[i];
  }
  EXPECT_GT(pair.client.transport->traffic().bytes_sent, static_cast<int64_t>(kMaxFrameBytes));
  EXPECT_EQ(pair.client.transport->traffic().bytes_sent,
            pair.server.transport->traffic().bytes_received);
}

TEST(TcpTransportTest, CloseFlushesAndBothSidesAreLostOnce) {
  for (const bool client_closes : {true, false}) {
    Connected pair;
    Peer& closer = client_closes ? pair.client : pair.server;
    Peer& other = client_closes ? pair.server : pair.client;
    const ConnectionId from = client_closes ? pair.out : pair.in;
    const ConnectionId to = client_closes ? pair.in : pair.out;
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(send_all(closer, from, frame_of(100'000, 3)));
    closer.transport->close(from);
    EXPECT_EQ(closer.transport->send(from, frame_of(1)), Sent::kClosed);
    EXPECT_EQ(other.recorder.wait_lost(to), "closed by the other side");
    EXPECT_EQ(closer.recorder.wait_lost(from), "closed by this side");
    EXPECT_EQ(other.recorder.count<Received>(to), 50U);
    EXPECT_EQ(other.recorder.count<Lost>(to), 1U);
    EXPECT_EQ(closer.recorder.count<Lost>(from), 1U);
    EXPECT_EQ(other.transport->send(to, frame_of(1)), Sent::kClosed);
  }
}

TEST(TcpTransportTest, DestroyingATransportFlushes) {
  Connected pair;
  ASSERT_TRUE(send_all(pair.server, pair.in, frame_of(2'000'000, 4)));
  pair.server.transport.reset();
  EXPECT_EQ(pair.client.recorder.wait_lost(pair.out), "closed by the other side");
  EXPECT_EQ(pair.client.recorder.count<Received>(pair.out), 1U);
}

// TCP_ESTABLISHED of netinet/tcp.h, which clashes with linux/tcp.h.
constexpr uint8_t kEstablished = 1;

/// What the kernel knows of this process's established TCP connections to that port.
std::vector<tcp_info> connections_to(uint16_t port) {
  std::vector<tcp_info> found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage peer{};
    socklen_t size = sizeof(peer);
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    const uint16_t peer_port = peer.ss_family == AF_INET
                                   ? reinterpret_cast<sockaddr_in*>(&peer)->sin_port
                                   : reinterpret_cast<sockaddr_in6*>(&peer)->sin6_port;
    tcp_info info{};
    size = sizeof(info);
    if (ntohs(peer_port) != port) continue;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    if (info.tcpi_state == kEstablished) found.push_back(info);
  }
  return found;
}
size_t num_established(const std::string& address) {
  return connections_to(parse_address(address)->port).size();
}

TEST(TcpTransportTest, ControlAndBulkAreDifferentTcpConnections) {
  Peer server;
  Peer client({.num_lanes = [](const LinkEstimate&) { return 1; }});
  const std::string address = server.listen();
  client.transport->connect(address, Plane::kControl);
  client.transport->connect(address, Plane::kBulk);
  client.transport->connect(address, Plane::kBulk);
  ASSERT_TRUE(client.recorder.wait([](const auto& events) { return events.size() == 3; }));
  EXPECT_EQ(num_established(address), 3U);
}

TEST(TcpTransportTest, BulkGetsMoreTcpConnectionsAndControlKeepsItsOwn) {
  Peer server;
  Peer client({.num_lanes = [](const LinkEstimate&) { return 3; }});
  const std::string address = server.listen();
  const ConnectionId bulk = client.transport->connect(address, Plane::kBulk);
  const ConnectionId in = server.recorder.wait_opened(true);
  const Bytes frame = frame_of(200'000);
  size_t num_sent = 0;
  for (; num_sent < 2'000 && num_established(address) < 3; ++num_sent) {
    ASSERT_TRUE(send_all(client, bulk, frame));
    std::this_thread::sleep_for(milliseconds(5));  // They open beside it, on a busy machine late.
  }
  EXPECT_EQ(num_established(address), 3U);
  const ConnectionId control = client.transport->connect(address, Plane::kControl);
  ASSERT_TRUE(send_all(client, control, frame));
  const ConnectionId control_in = server.recorder.wait_opened(true, Plane::kControl);
  EXPECT_EQ(server.recorder.wait_frames(control_in, 1).size(), 1U);
  EXPECT_EQ(num_established(address), 4U);
  const auto estimate = [&] { return client.transport->estimate(bulk).bytes_per_second; };
  for (const size_t most = num_sent + 2'000; num_sent < most && !(estimate() > 0); ++num_sent) {
    ASSERT_TRUE(send_all(client, bulk, frame));
    std::this_thread::sleep_for(milliseconds(5));  // It is one over a second.
  }
  EXPECT_GT(estimate(), 0);
  EXPECT_EQ(server.recorder.wait_frames(in, num_sent).size(), num_sent);
  client.transport->close(bulk);
  EXPECT_EQ(server.recorder.wait_lost(in), "closed by the other side");
}

TEST(TcpTransportTest, TrafficIsWhatTheKernelSent) {
  Peer server;
  Peer client;
  const std::string address = server.listen();
  const ConnectionId out = client.transport->connect(address, Plane::kBulk);
  const ConnectionId in = server.recorder.wait_opened(true);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(send_all(client, out, frame_of(256 << 10)));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(send_all(client, out, frame_of(100)));
  ASSERT_EQ(server.recorder.wait_frames(in, 1040).size(), 1040U);
  std::this_thread::sleep_for(milliseconds(50));  // The last acknowledgement.
  const auto connections = connections_to(parse_address(address)->port);
  ASSERT_EQ(connections.size(), 1U);
  const auto sent = static_cast<double>(connections[0].tcpi_bytes_acked);
  ASSERT_GT(sent, 0);
  const auto counted = static_cast<double>(client.transport->traffic().bytes_sent);
  EXPECT_NEAR(counted / sent, 1.0, 0.01) << counted << " counted, " << sent << " sent";
}

TEST(TcpTransportTest, PortInUseIsAnError) {
  Peer first;
  Peer second;
  const std::string address = first.listen();
  const auto again = second.transport->listen(address);
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr(address));
  EXPECT_THAT(again.error().message, HasSubstr("Address already in use"));
}

TEST(TcpTransportTest, RefusedConnectionIsLostFast) {
  std::string address;
  {
    Peer gone;
    address = gone.listen();
  }
  Peer client;
  const SystemClock clock;
  const Time begin = clock.now();
  const ConnectionId connection = client.transport->connect(address, Plane::kControl);
  EXPECT_EQ(client.recorder.wait_lost(connection),
            fmt::format("cannot connect to {}: connection refused", address));
  EXPECT_LT(seconds(clock.now() - begin), 2.0);
  EXPECT_EQ(client.transport->send(connection, frame_of(1)), Sent::kClosed);
}

/// A listening socket of the test itself.
struct Listener {
  explicit Listener(int backlog = 8) {
    socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket, backlog), 0);
    socklen_t size = sizeof(address);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(socket); }
  int socket = -1;
  uint16_t port = 0;
};

TEST(TcpTransportTest, ASilentAddressIsLostAfterTheTimeout) {
  const Listener listener;  // Accepts in the kernel and never says a word.
  Peer client({.connect_timeout = milliseconds(300)});
  const SystemClock clock;
  const Time begin = clock.now();
  const ConnectionId connection =
      client.transport->connect(fmt::format("127.0.0.1:{}", listener.port), Plane::kControl);
  EXPECT_THAT(client.recorder.wait_lost(connection), HasSubstr("cannot connect to 127.0.0.1"));
  EXPECT_LT(seconds(clock.now() - begin), 5.0);
}

TEST(TcpTransportTest, OnlyLoopbackUnlessInsecure) {
  Peer strict;
  const auto bound = strict.transport->listen("0.0.0.0:0");
  ASSERT_FALSE(bound);
  EXPECT_THAT(bound.error().message, HasSubstr("--insecure"));
  const ConnectionId connection = strict.transport->connect("192.0.2.1:5", Plane::kBulk);
  EXPECT_THAT(strict.recorder.wait_lost(connection), HasSubstr("--insecure"));
  const ConnectionId bad = strict.transport->connect("nonsense", Plane::kBulk);
  EXPECT_THAT(strict.recorder.wait_lost(bad), HasSubstr("'nonsense'"));
  Peer open({.insecure = true});
  EXPECT_THAT(open.transport->listen("0.0.0.0:0").value(), HasSubstr("0.0.0.0:"));
}

TEST(TcpTransportTest, Ipv6LoopbackWorks) {
  Peer server;
  Peer client;
  const auto address = server.transport->listen("[::1]:0");
  if (!address) GTEST_SKIP() << "no IPv6 here: " << address.error().message;
  EXPECT_THAT(*address, HasSubstr("[::1]:"));
  client.transport->connect(*address, Plane::kBulk);
  EXPECT_NE(client.recorder.wait_opened(false), 0U);
}

TEST(TcpTransportTest, FullQueueRefusesThenReportsWritable) {
  // The first piece leaves at once, the second a quarter of a second later: until then there is no
  // room for another frame.
  Connected pair({.link_rate_bits_per_s = 2e6, .queue_bytes = 100'000});
  const Bytes frame = frame_of(100'000);
  ASSERT_EQ(pair.client.transport->send(pair.out, frame), Sent::kAccepted);
  ASSERT_EQ(pair.client.transport->send(pair.out, frame), Sent::kFull);
  ASSERT_TRUE(send_all(pair.client, pair.out, frame));
  EXPECT_GE(pair.client.recorder.count<Writable>(pair.out), 1U);
  EXPECT_EQ(pair.server.recorder.wait_frames(pair.in, 2).size(), 2U);
}

TEST(TcpTransportTest, PacingHoldsTheRateAndControlGoesFirst) {
  Peer server;
  // 2 MB a second; both frames have room at once.
  Peer client({.link_rate_bits_per_s = 16e6, .lane_queue_bytes = 4'000'000});
  const std::string address = server.listen();
  const ConnectionId bulk = client.transport->connect(address, Plane::kBulk);
  const ConnectionId control = client.transport->connect(address, Plane::kControl);
  ASSERT_NE(server.recorder.wait_opened(true, Plane::kControl), 0U);
  ASSERT_NE(server.recorder.wait_opened(true, Plane::kBulk), 0U);
  const SystemClock clock;
  const Time begin = clock.now();
  ASSERT_TRUE(send_all(client, bulk, frame_of(1'000'000)));
  ASSERT_TRUE(send_all(client, bulk, frame_of(1'000'000)));
  ASSERT_TRUE(send_all(client, control, frame_of(100)));
  server.recorder.wait_frames(server.recorder.wait_opened(true, Plane::kControl), 1);
  const double control_seconds = seconds(clock.now() - begin);
  const ConnectionId in = server.recorder.wait_opened(true, Plane::kBulk);
  EXPECT_EQ(server.recorder.count<Received>(in), 0U) << "control waited for bulk";
  ASSERT_EQ(server.recorder.wait_frames(in, 2).size(), 2U);
  const double bulk_seconds = seconds(clock.now() - begin);
  EXPECT_LT(control_seconds, 0.4);
  EXPECT_GT(bulk_seconds, 0.85);  // 1 s, less the burst and the last piece.
  EXPECT_LT(bulk_seconds, 3.0);
}

/// Another process with a listening transport.
struct ChildProcess {
  ChildProcess() {
    int pipe_ends[2];
    EXPECT_EQ(::pipe(pipe_ends), 0);
    pid = ::fork();  // This process has threads: the child must exec.
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(pipe_ends[1], 1);
      ::execl("/proc/self/exe", "net_tcp_transport_test", "--gtest_also_run_disabled_tests",
              "--gtest_filter=TcpChild.DISABLED_Listens", static_cast<char*>(nullptr));
      ::_exit(1);
    }
    ::close(pipe_ends[1]);
    std::string output;
    char letter = 0;
    while (letter != '!' && ::read(pipe_ends[0], &letter, 1) == 1) output += letter;
    ::close(pipe_ends[0]);
    const size_t begin = output.find("address=") + 8;
    address = output.substr(begin, output.size() - begin - 1);
  }
  ~ChildProcess() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pid_t pid = 0;
  std::string address;
};

TEST(TcpTransportTest, KilledProcessIsLostWithinMilliseconds) {
  const ChildProcess child;
  Peer client;
  const ConnectionId connection = client.transport->connect(child.address, Plane::kBulk);
  ASSERT_EQ(client.recorder.wait_opened(false), connection);
  const SystemClock clock;
  const Time begin = clock.now();
  ::kill(child.pid, SIGKILL);
  EXPECT_THAT(client.recorder.wait_lost(connection), HasSubstr(child.address + " lost"));
  EXPECT_LT(seconds(clock.now() - begin), 1.0);
}

TEST(TcpTransportTest, StoppedProcessIsLostByKeepaliveWhileSending) {
  const ChildProcess child;
  Peer client({.keepalive = milliseconds(500)});
  const ConnectionId connection = client.transport->connect(child.address, Plane::kBulk);
  ASSERT_EQ(client.recorder.wait_opened(false), connection);
  ::kill(child.pid, SIGSTOP);
  static_cast<void>(client.transport->send(connection, frame_of(kMaxFrameBytes)));
  EXPECT_THAT(client.recorder.wait_lost(connection), HasSubstr(child.address + " lost"));
}

TEST(TcpTransportTest, AStoppedProcessDoesNotHoldUpTheEnd) {
  const ChildProcess child;
  const SystemClock clock;
  Time begin;
  {
    Peer client({.close_timeout = milliseconds(300)});
    const ConnectionId connection = client.transport->connect(child.address, Plane::kBulk);
    ASSERT_EQ(client.recorder.wait_opened(false), connection);
    ::kill(child.pid, SIGSTOP);
    static_cast<void>(client.transport->send(connection, frame_of(kMaxFrameBytes)));
    begin = clock.now();
  }
  EXPECT_LT(seconds(clock.now() - begin), 3.0);
}

/// What runs in it.
TEST(TcpChild, DISABLED_Listens) {
  Peer server;
  const std::string line = fmt::format("address={}!\n", server.listen());
  ASSERT_GT(::write(1, line.data(), line.size()), 0);
  ::sleep(60);
}

/// Writes bytes to the address and reads until the other side closes.
void send_raw(const std::string& address, const Bytes& bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(parse_address(address)->port);
  ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  static_cast<void>(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  ::shutdown(socket, SHUT_WR);
  const timeval patience{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char buffer[4096];
  while (::recv(socket, buffer, sizeof(buffer), 0) > 0) {
  }
  ::close(socket);
}

TEST(TcpTransportTest, GarbageSendersAreSurvived) {
  Peer server;
  const std::string address = server.listen();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Bytes garbage = frame_of(5'000, seed);
    if (seed % 2 == 0) {  // Past the preface: the HTTP/2 parser itself reads it.
      const auto preface = as_byte_span("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
      garbage.insert(garbage.begin(), preface.begin(), preface.end());
    }
    send_raw(address, garbage);
  }
  send_raw(address, {});
  EXPECT_EQ(
      server.recorder.wait([](const auto& events) { return !events.empty(); }, milliseconds(1)),
      false);
  Peer client;
  const ConnectionId connection = client.transport->connect(address, Plane::kBulk);
  EXPECT_EQ(client.recorder.wait_opened(false), connection);
}

TEST(TcpTransportTest, ManyConnectionsOpenAndCloseFromManyThreads) {
  Peer server;
  const std::string address = server.listen();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        Peer client;
        const ConnectionId connection = client.transport->connect(address, Plane::kBulk);
        static_cast<void>(client.transport->send(connection, frame_of(200'000)));
        if (i % 2 == 0) client.recorder.wait_opened(false);
        if (i % 3 == 0) client.transport->close(connection);
      }
    });
  }
  threads.clear();
  EXPECT_TRUE(server.recorder.wait([](const std::vector<Event>& events) {
    int num_open = 0;
    for (const Event& event : events) {
      num_open += std::holds_alternative<Opened>(event);
      num_open -= std::holds_alternative<Lost>(event);
    }
    return num_open == 0;
  }));
}

TEST(TcpTransportTest, ConnectionsBeyondTheLimitAreRefused) {
  Peer server({.max_inbound = 1});
  Peer client;
  const std::string address = server.listen();
  const ConnectionId first = client.transport->connect(address, Plane::kBulk);
  ASSERT_EQ(client.recorder.wait_opened(false), first);
  const ConnectionId second = client.transport->connect(address, Plane::kBulk);
  EXPECT_THAT(client.recorder.wait_lost(second), HasSubstr("all 1 connections are taken"));
}

}  // namespace
}  // namespace atl::net
