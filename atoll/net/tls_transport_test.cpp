// Connections with certificates, over loopback: who gets in, who does not, and what both are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <thread>

#include "atoll/identity/authority.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

using identity::Authority;
using identity::Role;
using identity::WallTime;
using testing::AnyOf;
using testing::HasSubstr;

WallTime wall_now() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

identity::Credentials credentials_of(const Authority& authority, Role role, const std::string& name,
                                     WallTime now = wall_now()) {
  const auto key = identity::Key::generate();
  const auto certificate = authority.sign(key.request(), {authority.fingerprint(), role, name},
                                          std::chrono::hours(1), now);
  return {authority.certificate_pem(), certificate.value(), key.pem()};
}

struct Member {
  Member(const identity::Credentials& credentials, bool takes_joins = false)
      : trust(std::make_shared<Trust>(credentials)),
        transport(make_tcp_transport({.trust = trust, .takes_joins = takes_joins}, clock,
                                     recorder.sink())) {}
  explicit Member(std::shared_ptr<Trust> whom)
      : trust(std::move(whom)),
        transport(make_tcp_transport({.trust = trust}, clock, recorder.sink())) {}
  std::string listen() { return transport->listen("127.0.0.1:0").value(); }

  SystemClock clock;
  Recorder recorder;
  std::shared_ptr<Trust> trust;
  std::unique_ptr<Transport> transport;
};

struct TlsTransportTest : testing::Test {
  Authority authority = Authority::create("ours", wall_now());
  Member coordinator{credentials_of(authority, Role::kCoordinator, "coordinator"),
                     /*takes_joins=*/true};
  std::string address = coordinator.listen();

  std::string reason_of(Member& member, Plane plane = Plane::kControl) {
    return member.recorder.wait_lost(member.transport->connect(address, plane));
  }
};

TEST_F(TlsTransportTest, MembersKnowEachOtherByTheirCertificates) {
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  const ConnectionId out = island.transport->connect(address, Plane::kControl);
  const Bytes frame(3'000'000, std::byte{7});
  ASSERT_EQ(island.transport->send(out, frame), Sent::kAccepted);
  const ConnectionId in = coordinator.recorder.wait_opened(true, Plane::kControl);
  const auto frames = coordinator.recorder.wait_frames(in, 1);
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_TRUE(frames[0] == frame);
  EXPECT_EQ(coordinator.recorder.opened(in).certificate->peer,
            (identity::PeerId{authority.fingerprint(), Role::kIsland, "reef"}));
  EXPECT_EQ(island.recorder.opened(out).certificate->peer,
            (identity::PeerId{authority.fingerprint(), Role::kCoordinator, "coordinator"}));
}

TEST_F(TlsTransportTest, AnotherAuthoritysMemberIsNotTaken) {
  const Authority other = Authority::create("theirs", wall_now());
  Member stranger(credentials_of(other, Role::kIsland, "reef"));
  EXPECT_THAT(reason_of(stranger), HasSubstr("its certificate is not taken"));
  EXPECT_EQ(coordinator.recorder.num_events(), 0U);
}

TEST_F(TlsTransportTest, CertificatesOutOfTheirTimeAreNotTaken) {
  using std::chrono::hours;
  Member early(credentials_of(authority, Role::kIsland, "early", wall_now() + hours(24)));
  Member late(credentials_of(authority, Role::kIsland, "late", wall_now() - hours(24)));
  EXPECT_THAT(reason_of(early), HasSubstr("does not take this side's certificate"));
  EXPECT_THAT(reason_of(late), HasSubstr("certificate expired"));
  for (Member* one : {&early, &late}) {
    EXPECT_THAT(reason_of(*one), HasSubstr("a clock is wrong: this machine's says 20"));
  }
  EXPECT_EQ(coordinator.recorder.num_events(), 0U);
}

/// As a coordinator's is to who has a clock that is a day off.
TEST_F(TlsTransportTest, AServersCertificateOutOfItsTimeIsOneOfAWrongClock) {
  using std::chrono::hours;
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  for (const auto offset : {hours(-24), hours(24)}) {
    Member off(credentials_of(authority, Role::kCoordinator, "coordinator", wall_now() + offset));
    const auto out = island.transport->connect(off.listen(), Plane::kControl);
    EXPECT_THAT(island.recorder.wait_lost(out),
                testing::ContainsRegex("its certificate is not taken: certificate .*, or a clock "
                                       "is wrong: this machine's says 20"));
  }
}

TEST_F(TlsTransportTest, WhoIsNoCoordinatorIsNotTakenForOne) {
  Member impostor(credentials_of(authority, Role::kIsland, "coordinator"));
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  const ConnectionId out = island.transport->connect(impostor.listen(), Plane::kControl);
  EXPECT_THAT(island.recorder.wait_lost(out), HasSubstr("not its coordinator"));
}

TEST_F(TlsTransportTest, ARevokedMemberIsCutOffAndStaysOut) {
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  Member other(credentials_of(authority, Role::kIsland, "lagoon"));
  const ConnectionId out = island.transport->connect(address, Plane::kControl);
  const ConnectionId other_out = other.transport->connect(address, Plane::kBulk);
  ASSERT_EQ(island.recorder.wait_opened(false, Plane::kControl), out);
  ASSERT_EQ(other.recorder.wait_opened(false, Plane::kBulk), other_out);
  authority.revoke(identity::Revocation::Kind::kPeer, "reef", wall_now());
  coordinator.trust->revoke(authority.revocations());
  EXPECT_THAT(island.recorder.wait_lost(out), HasSubstr("lost"));
  EXPECT_THAT(reason_of(island), HasSubstr("that member was revoked"));
  EXPECT_EQ(other.transport->send(other_out, Bytes(10)), Sent::kAccepted);
  const ConnectionId in = coordinator.recorder.wait_opened(true, Plane::kBulk);
  EXPECT_EQ(coordinator.recorder.wait_frames(in, 1).size(), 1U);
}

TEST_F(TlsTransportTest, AStrangerReachesTheJoinAloneAndKnowsWhomItAsks) {
  Member stranger(Trust::stranger(authority.fingerprint()));
  const ConnectionId out = stranger.transport->connect(address, Plane::kJoin);
  ASSERT_EQ(stranger.transport->send(out, Bytes(100)), Sent::kAccepted);
  const ConnectionId in = coordinator.recorder.wait_opened(true, Plane::kJoin);
  EXPECT_EQ(coordinator.recorder.wait_frames(in, 1).size(), 1U);
  EXPECT_FALSE(coordinator.recorder.opened(in).certificate);
  EXPECT_EQ(stranger.recorder.opened(out).certificate->peer.role, Role::kCoordinator);
  EXPECT_THAT(reason_of(stranger, Plane::kControl), HasSubstr("it showed no certificate"));
  EXPECT_THAT(reason_of(stranger, Plane::kBulk), HasSubstr("it showed no certificate"));
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  const ConnectionId asked = stranger.transport->connect(island.listen(), Plane::kJoin);
  EXPECT_THAT(stranger.recorder.wait_lost(asked), HasSubstr("cannot connect"));
  EXPECT_EQ(island.recorder.num_events(), 0U);
  Member misled(Trust::stranger(std::string(64, 'a')));
  EXPECT_THAT(reason_of(misled, Plane::kJoin), HasSubstr("its certificate is not taken"));
}

TEST_F(TlsTransportTest, ACoordinatorIsNotRevokedWithAMemberOfItsName) {
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  authority.revoke(identity::Revocation::Kind::kPeer, "coordinator", wall_now());
  island.trust->revoke(authority.revocations());
  const ConnectionId out = island.transport->connect(address, Plane::kControl);
  EXPECT_EQ(island.recorder.wait_opened(false, Plane::kControl), out);
}

TEST_F(TlsTransportTest, ARenewedCertificateIsForNewConnections) {
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  const ConnectionId out = island.transport->connect(address, Plane::kControl);
  ASSERT_EQ(island.recorder.wait_opened(false, Plane::kControl), out);
  const auto old_serial =
      coordinator.recorder.opened(coordinator.recorder.wait_opened(true, Plane::kControl));
  island.trust->renew(credentials_of(authority, Role::kIsland, "reef"));
  const ConnectionId second = island.transport->connect(address, Plane::kBulk);
  ASSERT_EQ(island.recorder.wait_opened(false, Plane::kBulk), second);
  EXPECT_EQ(island.transport->send(out, Bytes(10)), Sent::kAccepted);
  EXPECT_EQ(coordinator.recorder.wait_frames(old_serial.connection, 1).size(), 1U);
}

TEST_F(TlsTransportTest, PlainTextAndEncryptedPeersTellEachOtherApart) {
  SystemClock clock;
  Recorder recorder;
  const auto plain = make_tcp_transport({.insecure = true}, clock, recorder.sink());
  EXPECT_THAT(recorder.wait_lost(plain->connect(address, Plane::kControl)),
              HasSubstr("cannot connect"));
  Member island(credentials_of(authority, Role::kIsland, "reef"));
  const ConnectionId out =
      island.transport->connect(plain->listen("127.0.0.1:0").value(), Plane::kControl);
  EXPECT_THAT(island.recorder.wait_lost(out),
              AnyOf(HasSubstr("it speaks no TLS"), HasSubstr("reset by peer")));
  EXPECT_EQ(coordinator.recorder.num_events(), 0U);
}

}  // namespace
}  // namespace atl::net
