// What strangers and broken peers send, on a bare socket.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "atoll/base/descriptor.h"
#include "atoll/net/address.h"
#include "atoll/net/segment.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

/// A bare socket, connected.
struct Caller {
  explicit Caller(const std::string& address) : socket(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(parse_address(address)->port);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  void say(std::span<const std::byte> bytes) const {
    static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  void say(const SegmentHeader& header, std::string_view body = {}) const {
    say(encode(header));
    say(as_byte_span(body));
  }
  /// All until the other side closes.
  std::string heard() const {
    std::string all;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(socket.get(), buffer, sizeof buffer, 0)) > 0;) {
      all.append(buffer, static_cast<size_t>(got));
    }
    return all;
  }
  Descriptor socket;
};

struct StrangerTest : testing::Test {
  explicit StrangerTest(TransportOptions options = {.connect_timeout = milliseconds(300)})
      : transport(make_tcp_transport(std::move(options), clock, recorder.sink())) {}

  /// Why is a peer dropped that keeps the protocol up to this?
  std::string reason_after(const SegmentHeader& header, std::string_view body = {}) {
    const Caller caller(address);
    caller.say(encode(Hello{.plane = Plane::kControl}));
    const ConnectionId connection = recorder.wait_opened(true, Plane::kControl);
    caller.say(header, body);
    return recorder.wait_lost(connection);
  }

  SystemClock clock;
  Recorder recorder;
  std::unique_ptr<Transport> transport;
  std::string address = transport->listen("127.0.0.1:0").value();
};

TEST_F(StrangerTest, OtherProtocolsAreTurnedAwayAndNobodyHearsOfIt) {
  for (const std::string_view words :
       {"GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01",
        "0123456789012345678901234567890123456789"}) {
    const Caller caller(address);
    caller.say(as_byte_span(words));
    EXPECT_EQ(caller.heard(), "") << words;
  }
  EXPECT_EQ(recorder.num_events(), 0U);
}

TEST_F(StrangerTest, SilenceAndTrickleEndAtTheDeadline) {
  const Caller silent(address);
  const Caller slow(address);
  const Bytes hello = encode(Hello{});
  slow.say(std::span(hello).first(7));
  EXPECT_EQ(silent.heard(), "");
  EXPECT_EQ(slow.heard(), "");
  EXPECT_EQ(recorder.num_events(), 0U);
}

TEST_F(StrangerTest, AnotherVersionHearsOurs) {
  const Caller caller(address);
  caller.say(encode(Hello{.version = 999}));
  const std::string answer = caller.heard();
  ASSERT_GT(answer.size(), kHeaderBytes);
  const auto hello = decode_hello(as_byte_span(answer).subspan(kHeaderBytes));
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->version, kProtocolVersion);
  EXPECT_EQ(recorder.num_events(), 0U);
}

TEST_F(StrangerTest, NobodyJoinsInTheClear) {
  const Caller caller(address);
  caller.say(encode(Hello{.plane = Plane::kJoin}));
  EXPECT_THAT(caller.heard(), HasSubstr("nobody is certified here"));
}

TEST_F(StrangerTest, AWrongChecksumIsLostWithTheReason) {
  EXPECT_THAT(
      reason_after({.kind = SegmentKind::kLastPiece, .size = 5, .checksum = 12345}, "hello"),
      HasSubstr("sent a frame of 5 bytes with a wrong checksum"));
}

TEST_F(StrangerTest, ASegmentBeyondTheLimitIsLostBeforeItsBody) {
  EXPECT_THAT(reason_after({.kind = SegmentKind::kPiece, .size = kMaxPieceBytes + 1}),
              HasSubstr("sent what is no segment"));
}

TEST_F(StrangerTest, ASecondHelloIsNoSegment) {
  EXPECT_THAT(reason_after({.kind = SegmentKind::kRefusal}), HasSubstr("sent what is no segment"));
}

TEST_F(StrangerTest, PiecesThatNeverEndAreCutOffAtTheLargestFrame) {
  const Caller caller(address);
  caller.say(encode(Hello{.plane = Plane::kControl}));
  const ConnectionId connection = recorder.wait_opened(true, Plane::kControl);
  const std::string body(kMaxPieceBytes, 'x');
  for (size_t sent = 0; sent <= kMaxFrameBytes + kMaxPieceBytes; sent += body.size()) {
    caller.say({.kind = SegmentKind::kPiece, .size = static_cast<uint32_t>(body.size())}, body);
  }
  EXPECT_THAT(recorder.wait_lost(connection), HasSubstr("sent a frame of more than"));
}

TEST_F(StrangerTest, AFloodOfPingsFromWhoHangsUpIsSurvived) {
  for (int i = 0; i < 20; ++i) {
    const Caller caller(address);
    caller.say(encode(Hello{.plane = Plane::kControl}));
    const auto ping = encode(SegmentHeader{.kind = SegmentKind::kPing});
    Bytes flood;
    for (int k = 0; k < 50'000; ++k) flood.insert(flood.end(), ping.begin(), ping.end());
    const timeval moment{.tv_sec = 0, .tv_usec = 20'000};
    ::setsockopt(caller.socket.get(), SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment);
    caller.say(flood);
    const linger at_once{.l_onoff = 1, .l_linger = 0};  // Its end is a reset.
    ::setsockopt(caller.socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  const Caller next(address);
  next.say(encode(Hello{.plane = Plane::kBulk}));
  EXPECT_NE(recorder.wait_opened(true, Plane::kBulk), 0U);
}

struct CrowdTest : StrangerTest {
  CrowdTest()
      : StrangerTest({.connect_timeout = milliseconds(2'000),
                      .door = {.per_address = 6, .greeting = 100, .greeting_per_address = 4}}) {}
};

TEST_F(CrowdTest, AFloodFromOneAddressIsCappedAndEndsAtTheDeadline) {
  std::vector<std::unique_ptr<Caller>> flood;
  for (int i = 0; i < 4; ++i) flood.push_back(std::make_unique<Caller>(address));
  std::this_thread::sleep_for(milliseconds(50));  // All are at the door.
  EXPECT_EQ(Caller(address).heard(), "");         // Closed at once.
  for (const auto& one : flood) EXPECT_EQ(one->heard(), "");
  // The places are free again, for as many as one address may have.
  std::vector<std::unique_ptr<Caller>> members;
  for (int i = 0; i < 6; ++i) {
    members.push_back(std::make_unique<Caller>(address));
    members.back()->say(encode(Hello{.plane = Plane::kControl}));
    const size_t wanted = members.size();
    EXPECT_TRUE(recorder.wait([&](const auto& events) { return events.size() >= wanted; }));
  }
  EXPECT_EQ(Caller(address).heard(), "");
}

TEST(OtherServerTest, AServerThatIsNoAtollPeerIsLostWithTheReason) {
  const Descriptor listening(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  socklen_t size = sizeof at;
  ::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&at), &size);
  const SystemClock clock;
  Recorder recorder;
  const auto transport = make_tcp_transport({}, clock, recorder.sink());
  const ConnectionId connection =
      transport->connect("127.0.0.1:" + std::to_string(ntohs(at.sin_port)), Plane::kControl);
  const Descriptor accepted(::accept(listening.get(), nullptr, nullptr));
  const std::string words = "HTTP/1.1 400 Bad Request\r\n\r\n";
  ASSERT_GT(::send(accepted.get(), words.data(), words.size(), 0), 0);
  EXPECT_THAT(recorder.wait_lost(connection), HasSubstr("it is no Atoll peer"));
}

}  // namespace
}  // namespace atl::net
