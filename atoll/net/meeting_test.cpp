// Two members that meet at a third's, over loopback.
#include "atoll/net/meeting.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "atoll/base/random.h"
#include "atoll/identity/authority.h"
#include "atoll/net/circuit.h"
#include "atoll/net/socket_address.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

using identity::Authority;
using identity::Role;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

identity::WallTime wall_now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

std::shared_ptr<Trust> trust_of(const Authority& authority, Role role, const std::string& name) {
  const auto key = identity::Key::generate();
  const auto certificate = authority.sign(key.request(), {authority.fingerprint(), role, name},
                                          std::chrono::hours(1), wall_now());
  return std::make_shared<Trust>(
      identity::Credentials{authority.certificate_pem(), certificate.value(), key.pem()});
}

Bytes frame_of(size_t size, uint64_t seed) {
  Bytes frame(size);
  for (size_t i = 0; i < size; ++i) frame[i] = static_cast<std::byte>(random_bits(seed, 0, i));
  return frame;
}

/// In the clear without a trust.
struct Member {
  explicit Member(std::shared_ptr<Trust> whom, std::shared_ptr<Relay> relay = nullptr)
      : trust(std::move(whom)),
        transport(make_tcp_transport({.trust = trust,
                                      .connect_timeout = milliseconds(2'000),
                                      .close_timeout = milliseconds(50),
                                      .relay = std::move(relay),
                                      .punch_timeout = milliseconds(1'000)},
                                     clock, recorder.sink())) {}
  std::string listen(const std::string& at = "127.0.0.1:0") {
    return transport->listen(at).value();
  }
  ConnectionId meet(const std::string& at, bool calls, bool may_punch = false, int circuit = 1,
                    Plane plane = Plane::kBulk) {
    return transport->meet({.relay = at,
                            .circuit = {static_cast<std::byte>(circuit)},
                            .calls = calls,
                            .may_punch = may_punch},
                           plane);
  }

  SystemClock clock;
  Recorder recorder;
  std::shared_ptr<Trust> trust;
  std::unique_ptr<Transport> transport;
};

struct MeetingTest : testing::Test {
  Authority authority = Authority::create("ours", wall_now());
  SystemClock clock;
  std::shared_ptr<Relay> relay = std::make_shared<Relay>(RelayLimits{}, clock);
  Member third{trust_of(authority, Role::kCoordinator, "coordinator"), relay};
  Member reef{trust_of(authority, Role::kIsland, "reef")};
  Member lagoon{trust_of(authority, Role::kIsland, "lagoon")};
  std::string address = third.listen();
};

void expect_frames_both_ways(Member& caller, ConnectionId out, Member& called, ConnectionId in) {
  const Bytes there = frame_of(kMaxFrameBytes, 1);
  const Bytes back = frame_of(kMaxFrameBytes, 2);
  // What says how much has arrived may be in a queue, which then has no room for a largest frame.
  while (caller.transport->send(out, there) == Sent::kFull) std::this_thread::yield();
  while (called.transport->send(in, back) == Sent::kFull) std::this_thread::yield();
  const auto at_called = called.recorder.wait_frames(in, 1);
  const auto at_caller = caller.recorder.wait_frames(out, 1);
  ASSERT_EQ(at_called.size(), 1U);
  ASSERT_EQ(at_caller.size(), 1U);
  EXPECT_TRUE(at_called[0] == there);
  EXPECT_TRUE(at_caller[0] == back);
}

TEST_F(MeetingTest, TwoMeetThroughTheRelayInEitherOrder) {
  int circuit = 0;
  for (const bool caller_first : {true, false}) {
    ++circuit;
    Member& first = caller_first ? reef : lagoon;
    Member& second = caller_first ? lagoon : reef;
    const ConnectionId one = first.meet(address, caller_first, false, circuit);
    std::this_thread::sleep_for(milliseconds(100));
    const ConnectionId two = second.meet(address, !caller_first, false, circuit);
    const ConnectionId out = caller_first ? one : two;
    const ConnectionId in = caller_first ? two : one;
    expect_frames_both_ways(reef, out, lagoon, in);
    const Opened at_caller = reef.recorder.opened(out);
    const Opened at_called = lagoon.recorder.opened(in);
    EXPECT_EQ(at_caller.way, Way::kRelayed);
    EXPECT_EQ(at_called.way, Way::kRelayed);
    EXPECT_FALSE(at_caller.inbound);
    EXPECT_TRUE(at_called.inbound);
    EXPECT_EQ(at_caller.certificate->peer.name, "lagoon");
    EXPECT_EQ(at_called.certificate->peer.name, "reef");
    EXPECT_EQ(at_caller.remote, "lagoon through " + address);
    reef.transport->close(out);
    EXPECT_EQ(lagoon.recorder.wait_lost(in), "closed by the other side");
    EXPECT_EQ(reef.recorder.wait_lost(out), "closed by this side");
  }
  EXPECT_EQ(relay->traffic().num_circuits_ever, 2);
  EXPECT_GT(relay->traffic().bytes, static_cast<int64_t>(4 * kMaxFrameBytes));
  EXPECT_EQ(third.recorder.num_events(), 0U);
}

TEST_F(MeetingTest, TwoWhoCanReachEachOtherDoSoWithoutTheRelay) {
  const ConnectionId out = reef.meet(address, /*calls=*/true, /*may_punch=*/true);
  const ConnectionId in = lagoon.meet(address, /*calls=*/false, /*may_punch=*/true);
  expect_frames_both_ways(reef, out, lagoon, in);
  EXPECT_EQ(reef.recorder.opened(out).way, Way::kPunched);
  EXPECT_EQ(lagoon.recorder.opened(in).way, Way::kPunched);
  EXPECT_EQ(reef.recorder.opened(out).certificate->peer.name, "lagoon");
  EXPECT_THAT(reef.recorder.opened(out).remote, HasSubstr("127.0.0.1:"));
  EXPECT_LT(relay->traffic().bytes, 10'000);
  relay.reset();
  third.transport.reset();  // What was punched needs it no more.
  EXPECT_EQ(reef.transport->send(out, Bytes(10)), Sent::kAccepted);
  EXPECT_EQ(lagoon.recorder.wait_frames(in, 2).size(), 2U);
}

TEST_F(MeetingTest, ItIsTheSameOverIpv6) {
  if (!make_tcp_transport({}, clock, [](Event) {})->listen("[::1]:0")) GTEST_SKIP() << "none here";
  const std::string there = third.listen("[::1]:0");
  for (const bool may_punch : {false, true}) {
    const ConnectionId out = reef.meet(there, /*calls=*/true, may_punch, may_punch ? 1 : 2);
    const ConnectionId in = lagoon.meet(there, /*calls=*/false, may_punch, may_punch ? 1 : 2);
    expect_frames_both_ways(reef, out, lagoon, in);
    EXPECT_EQ(reef.recorder.opened(out).way, may_punch ? Way::kPunched : Way::kRelayed);
  }
}

/// Who has the one kind alone cannot call who has the other; the relay has both.
TEST_F(MeetingTest, BetweenTheTwoKindsOfIpItIsRelayed) {
  if (!make_tcp_transport({}, clock, [](Event) {})->listen("[::1]:0")) GTEST_SKIP() << "none here";
  const Address both = parse_address(third.listen("[::]:0")).value();
  const std::string port = std::to_string(both.port);
  for (const bool is_caller_new : {true, false}) {
    const int circuit = is_caller_new ? 1 : 2;
    const ConnectionId out = reef.meet((is_caller_new ? "[::1]:" : "127.0.0.1:") + port,
                                       /*calls=*/true, /*may_punch=*/true, circuit);
    const ConnectionId in = lagoon.meet((is_caller_new ? "127.0.0.1:" : "[::1]:") + port,
                                        /*calls=*/false, /*may_punch=*/true, circuit);
    EXPECT_EQ(reef.recorder.opened(out).way, Way::kRelayed);
    expect_frames_both_ways(reef, out, lagoon, in);
  }
}

TEST_F(MeetingTest, OneThatDoesNotPunchIsReachedThroughTheRelayAtOnce) {
  const ConnectionId out = reef.meet(address, /*calls=*/true, /*may_punch=*/true);
  const ConnectionId in = lagoon.meet(address, /*calls=*/false, /*may_punch=*/false);
  expect_frames_both_ways(reef, out, lagoon, in);
  EXPECT_EQ(reef.recorder.opened(out).way, Way::kRelayed);
}

TEST_F(MeetingTest, TheClearIsRelayedAsWell) {
  Member plain(nullptr, std::make_shared<Relay>(RelayLimits{}, clock));
  Member one(nullptr);
  Member other(nullptr);
  const std::string at = plain.listen();
  for (const bool may_punch : {false, true}) {
    const ConnectionId out = one.meet(at, true, may_punch, may_punch ? 1 : 2, Plane::kControl);
    const ConnectionId in = other.meet(at, false, may_punch, may_punch ? 1 : 2, Plane::kControl);
    expect_frames_both_ways(one, out, other, in);
    EXPECT_EQ(one.recorder.opened(out).way, may_punch ? Way::kPunched : Way::kRelayed);
    EXPECT_THAT(one.recorder.opened(out).remote,
                HasSubstr(may_punch ? "127.0.0.1" : "a member through " + at));
  }
}

TEST_F(MeetingTest, WhoComesAloneIsTold) {
  const ConnectionId alone = reef.meet(address, /*calls=*/true);
  EXPECT_EQ(reef.recorder.wait_lost(alone),
            "cannot meet at " + address + ": the other side did not come");
}

TEST_F(MeetingTest, WhoClosesTheConnectionComesNoMore) {
  const ConnectionId gone = reef.meet(address, /*calls=*/true);
  std::this_thread::sleep_for(milliseconds(200));  // It waits at the relay by then.
  reef.transport->close(gone);
  reef.recorder.wait_lost(gone);
  // The relay may hear of it a moment later: either way nobody is there for the other one.
  EXPECT_NE(lagoon.recorder.wait_lost(lagoon.meet(address, /*calls=*/false)), "not lost");
  const ConnectionId out = reef.meet(address, /*calls=*/true, /*may_punch=*/false, /*circuit=*/2);
  const ConnectionId in = lagoon.meet(address, /*calls=*/false, /*may_punch=*/false, 2);
  expect_frames_both_ways(reef, out, lagoon, in);
}

TEST_F(MeetingTest, WhoRelaysNothingSaysSo) {
  const std::string at = lagoon.listen();
  EXPECT_EQ(reef.recorder.wait_lost(reef.meet(at, true)),
            "cannot meet at " + at + ": this process relays nothing");
}

/// A relay that keeps what it passes on.
class Spy {
 public:
  explicit Spy(std::shared_ptr<Trust> trust) : trust_(std::move(trust)) {
    const SocketAddress any = *numeric_address({.host = "127.0.0.1", .port = 0});
    EXPECT_EQ(::bind(listening_.get(), any.get(), any.size), 0);
    EXPECT_EQ(::listen(listening_.get(), 2), 0);
    thread_ = std::thread([this] { relay(); });
  }
  ~Spy() { thread_.join(); }
  std::string address() const { return local_address(listening_.get()).address().text(); }
  std::string kept() {
    const MutexLock lock(mutex_);
    return kept_;
  }

 private:
  struct Seat {
    std::unique_ptr<ByteStream> stream;
    CircuitRequest request;
    std::string observed;
  };

  /// Of a socket that blocks.
  static Bytes read(ByteStream& stream, size_t size) {
    Bytes bytes(size);
    for (size_t count = 0; count < size;) {
      const Moved moved = stream.read(std::span(bytes).subspan(count));
      if (!moved.is_done()) return {};
      count += moved.num_bytes;
    }
    return bytes;
  }
  static bool write(ByteStream& stream, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::array parts = {bytes};
      const Moved moved = stream.write(parts);
      if (moved.outcome == Moved::Outcome::kEnded) return false;
      bytes = bytes.subspan(moved.num_bytes);
    }
    return true;
  }
  Seat seat() const {
    Descriptor socket(::accept(listening_.get(), nullptr, nullptr));
    Seat seat{.observed = remote_address(socket.get()).address().text()};
    seat.stream =
        trust_->called_stream(make_plain_stream(std::move(socket)), /*takes_joins=*/false);
    EXPECT_TRUE(seat.stream->greet().is_done());
    const Bytes hello = encode(Hello{.plane = Plane::kCircuit});
    EXPECT_EQ(read(*seat.stream, hello.size()), hello);
    write(*seat.stream, hello);
    const Bytes request = read(*seat.stream, kCircuitRequestBytes);
    seat.request = *decode_circuit_request(std::span(request).first<kCircuitRequestBytes>());
    return seat;
  }
  void relay() {
    std::array seats = {seat(), seat()};
    for (int i : {0, 1}) {
      const Seat& other = seats[1 - i];
      write(*seats[i].stream, encode(CircuitAnswer{.observed = other.observed}));
      ::fcntl(seats[i].stream->descriptor(), F_SETFL, O_NONBLOCK);
    }
    for (int from = 0;; from = 1 - from) {
      Bytes bytes(4096);
      const Moved moved = seats[from].stream->read(bytes);
      if (moved.outcome == Moved::Outcome::kEnded) return;
      bytes.resize(moved.num_bytes);
      if (!write(*seats[1 - from].stream, bytes)) return;
      const MutexLock lock(mutex_);
      kept_ += as_text(bytes);
    }
  }

  const std::shared_ptr<Trust> trust_;
  const Descriptor listening_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Mutex mutex_;
  std::string kept_ ATOLL_GUARDED_BY(mutex_);
  std::thread thread_;
};

TEST_F(MeetingTest, ARelayCannotReadWhatItPassesOn) {
  const std::string secret = "what nobody else may read";
  const auto words = as_byte_span(secret);
  Spy spy(trust_of(authority, Role::kIsland, "spy"));
  const ConnectionId out = reef.meet(spy.address(), true);
  const ConnectionId in = lagoon.meet(spy.address(), false);
  ASSERT_EQ(reef.transport->send(out, Bytes(words.begin(), words.end())), Sent::kAccepted);
  EXPECT_EQ(lagoon.recorder.wait_frames(in, 1).at(0), Bytes(words.begin(), words.end()));
  const std::string kept = spy.kept();
  EXPECT_GT(kept.size(), 1'000U);
  EXPECT_EQ(kept.substr(0, 2), "\x16\x03");  // The two begin to agree on keys of their own.
  EXPECT_EQ(kept.find(secret), std::string::npos);
  EXPECT_EQ(kept.find(secret.substr(0, 8)), std::string::npos);
  reef.transport->close(out);
  EXPECT_EQ(lagoon.recorder.wait_lost(in), "closed by the other side");
}

TEST_F(MeetingTest, OnePortRelaysForSeveralRuns) {
  Authority other = Authority::create("theirs", wall_now());
  const auto second = trust_of(other, Role::kRelay, "relay");
  SystemClock time;
  Recorder recorder;
  const auto both = make_tcp_transport({.trust = trust_of(authority, Role::kRelay, "relay"),
                                        .more_trusts = {second},
                                        .relay = relay},
                                       time, recorder.sink());
  const std::string at = both->listen("127.0.0.1:0").value();
  Member their_reef(trust_of(other, Role::kIsland, "reef"));
  Member their_lagoon(trust_of(other, Role::kIsland, "lagoon"));
  // The same circuit's number, in each run.
  const ConnectionId out = reef.meet(at, true);
  const ConnectionId their_out = their_reef.meet(at, true);
  const ConnectionId in = lagoon.meet(at, false);
  const ConnectionId their_in = their_lagoon.meet(at, false);
  expect_frames_both_ways(reef, out, lagoon, in);
  expect_frames_both_ways(their_reef, their_out, their_lagoon, their_in);
  EXPECT_EQ(reef.recorder.opened(out).certificate->peer.run, authority.fingerprint());
  EXPECT_EQ(their_reef.recorder.opened(their_out).certificate->peer.run, other.fingerprint());
  // An authority speaks for its own run alone.
  const auto key = identity::Key::generate();
  const auto forged = authority.sign(key.request(), {other.fingerprint(), Role::kIsland, "reef"},
                                     std::chrono::hours(1), wall_now());
  if (forged) {
    Member forger(std::make_shared<Trust>(
        identity::Credentials{authority.certificate_pem(), *forged, key.pem()}));
    EXPECT_THAT(forger.recorder.wait_lost(forger.meet(at, true, false, 7)),
                HasSubstr("certificate"));
  }
  other.revoke(identity::Revocation::Kind::kPeer, "reef", wall_now());
  second->revoke(other.revocations());
  EXPECT_THAT(their_lagoon.recorder.wait_lost(their_in), HasSubstr("lost"));
  EXPECT_EQ(reef.transport->send(out, Bytes(10)), Sent::kAccepted);
  EXPECT_EQ(lagoon.recorder.wait_frames(in, 2).size(), 2U);
}

TEST_F(MeetingTest, MembersOfTwoRunsNeverMeetAndShareTheLimits) {
  Authority other = Authority::create("theirs", wall_now());
  SystemClock time;
  Recorder recorder;
  const auto narrow = std::make_shared<Relay>(
      RelayLimits{.num_circuits = 2, .partner_patience = std::chrono::milliseconds(300)}, time);
  const auto both = make_tcp_transport({.trust = trust_of(authority, Role::kRelay, "relay"),
                                        .more_trusts = {trust_of(other, Role::kRelay, "relay")},
                                        .relay = narrow},
                                       time, recorder.sink());
  const std::string at = both->listen("127.0.0.1:0").value();
  Member theirs(trust_of(other, Role::kIsland, "lagoon"));
  // They name one circuit, and would pair if they were of one run.
  const ConnectionId out = reef.meet(at, true);
  const ConnectionId in = theirs.meet(at, false);
  EXPECT_THAT(reef.recorder.wait_lost(out), EndsWith("the other side did not come"));
  EXPECT_THAT(theirs.recorder.wait_lost(in), EndsWith("the other side did not come"));
  EXPECT_EQ(narrow->traffic().num_circuits_ever, 0);
  // One circuit of each run is all that there is.
  reef.meet(at, true);
  theirs.meet(at, false);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_THAT(lagoon.recorder.wait_lost(lagoon.meet(at, true, false, 9)),
              EndsWith("all 2 circuits are taken"));
}

TEST_F(MeetingTest, NobodyIsMetByItself) {
  Member again(trust_of(authority, Role::kIsland, "reef"));
  const ConnectionId one = reef.meet(address, true);
  const ConnectionId two = again.meet(address, false);
  again.recorder.wait([](const auto& events) { return !events.empty(); },
                      std::chrono::milliseconds(1'000));
  const bool was_second = again.recorder.num_events() > 0;
  EXPECT_THAT(was_second ? again.recorder.wait_lost(two) : reef.recorder.wait_lost(one),
              EndsWith("nobody meets itself"));
}

TEST_F(MeetingTest, ARelayThatIsNotThereIsNamed) {
  std::string at;
  {
    Member gone{trust_of(authority, Role::kIsland, "gone")};
    at = gone.listen();
  }
  EXPECT_EQ(reef.recorder.wait_lost(reef.meet(at, true)),
            "cannot meet at " + at + ": connection refused");
  EXPECT_THAT(reef.recorder.wait_lost(reef.meet("nonsense", true)),
              HasSubstr("cannot meet at nonsense: "));
}

TEST_F(MeetingTest, WhoIsNotOfTheRunOrWasRevokedMeetsNobody) {
  const Authority other = Authority::create("theirs", wall_now());
  Member foreigner(trust_of(other, Role::kIsland, "reef"));
  EXPECT_THAT(foreigner.recorder.wait_lost(foreigner.meet(address, true)),
              HasSubstr("its certificate is not taken"));
  Member stranger(std::shared_ptr<Trust>(Trust::stranger(authority.fingerprint())));
  EXPECT_THAT(stranger.recorder.wait_lost(stranger.meet(address, true)),
              HasSubstr("cannot meet at"));
  Member reader(trust_of(authority, Role::kReader, "reader"));
  EXPECT_THAT(reader.recorder.wait_lost(reader.meet(address, true)),
              EndsWith("no reader meets others here"));
  authority.revoke(identity::Revocation::Kind::kPeer, "reef", wall_now());
  third.trust->revoke(authority.revocations());
  EXPECT_THAT(reef.recorder.wait_lost(reef.meet(address, true)),
              EndsWith("that member was revoked"));
  EXPECT_EQ(relay->traffic().num_circuits_ever, 0);
}

TEST_F(MeetingTest, WhoIsRevokedLaterIsCutOff) {
  const ConnectionId out = reef.meet(address, true);
  const ConnectionId in = lagoon.meet(address, false);
  expect_frames_both_ways(reef, out, lagoon, in);
  authority.revoke(identity::Revocation::Kind::kPeer, "reef", wall_now());
  third.trust->revoke(authority.revocations());
  EXPECT_THAT(reef.recorder.wait_lost(out), HasSubstr("lost"));
  EXPECT_THAT(lagoon.recorder.wait_lost(in), HasSubstr("lost"));
}

TEST_F(MeetingTest, AMemberThatTheOtherEndDoesNotBelieveIsNotMet) {
  authority.revoke(identity::Revocation::Kind::kPeer, "reef", wall_now());
  lagoon.trust->revoke(authority.revocations());  // The relay has not heard of it yet.
  for (const bool may_punch : {false, true}) {
    const ConnectionId out = reef.meet(address, true, may_punch, may_punch ? 1 : 2);
    const ConnectionId in = lagoon.meet(address, false, may_punch, may_punch ? 1 : 2);
    EXPECT_THAT(reef.recorder.wait_lost(out), EndsWith("that member was revoked"));
    EXPECT_THAT(lagoon.recorder.wait_lost(in), EndsWith("that member was revoked"));
  }
}

TEST_F(MeetingTest, ARelayThatDiesInMidTransferIsLostAtBothEnds) {
  const ConnectionId out = reef.meet(address, true);
  const ConnectionId in = lagoon.meet(address, false);
  expect_frames_both_ways(reef, out, lagoon, in);
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(reef.transport->send(out, Bytes(1'000'000)));
    static_cast<void>(lagoon.transport->send(in, Bytes(1'000'000)));
  }
  third.transport.reset();
  relay.reset();
  EXPECT_THAT(reef.recorder.wait_lost(out), AllOf(HasSubstr("lagoon through"), HasSubstr("lost")));
  EXPECT_THAT(lagoon.recorder.wait_lost(in), HasSubstr("lost"));
}

TEST_F(MeetingTest, ATransportThatGoesInMidMeetingLeavesNothing) {
  for (int wait_ms = 0; wait_ms < 40; wait_ms += 4) {
    Member one{trust_of(authority, Role::kIsland, "one")};
    Member two{trust_of(authority, Role::kIsland, "two")};
    one.meet(address, true, true, 100 + wait_ms);
    two.meet(address, false, true, 100 + wait_ms);
    one.meet(address, true, true, 200 + wait_ms);
    std::this_thread::sleep_for(milliseconds(wait_ms));
    one.transport.reset();
    two.transport.reset();
  }
  relay.reset();
  third.transport.reset();
}

}  // namespace
}  // namespace atl::net
