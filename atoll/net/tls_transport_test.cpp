// Connections with certificates, over loopback: who gets in, who does not, and what both are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <thread>

#include "atoll/identity/authority.h"
#include "atoll/identity/issue.h"
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

/// A process that coordinates two runs, at one port.
struct SeveralRunsTest : TlsTransportTest {
  Authority other = Authority::create("theirs", wall_now());
  std::shared_ptr<Trust> first =
      std::make_shared<Trust>(credentials_of(authority, Role::kCoordinator, "coordinator"));
  std::shared_ptr<Trust> second =
      std::make_shared<Trust>(credentials_of(other, Role::kCoordinator, "coordinator"));
  SystemClock clock;
  Recorder recorder;
  std::unique_ptr<Transport> both = make_tcp_transport(
      {.trust = first, .more_trusts = {second}, .takes_joins = true}, clock, recorder.sink());
  std::string at = both->listen("127.0.0.1:0").value();
};

TEST_F(SeveralRunsTest, EachCallerIsOfTheRunWhoseCertificateItHas) {
  for (const Authority* const run : {&authority, &other}) {
    const size_t before = recorder.num_events();
    Member island(credentials_of(*run, Role::kIsland, "reef"));
    const ConnectionId out = island.transport->connect(at, Plane::kControl);
    ASSERT_EQ(island.recorder.wait_opened(false, Plane::kControl), out);
    EXPECT_EQ(island.recorder.opened(out).certificate->peer.run, run->fingerprint());
    recorder.wait([&](const auto& events) { return events.size() > before; });
    const Opened opened = recorder.opened(recorder.wait_opened(true, Plane::kControl));
    EXPECT_EQ(opened.run, run->fingerprint());
    EXPECT_EQ(opened.certificate->peer.run, run->fingerprint());
  }
}

TEST_F(SeveralRunsTest, ACertificateOfOneRunNeverSpeaksForAnother) {
  // The first run's authority signs for the second's member, and who shows that means the second.
  const auto authority_key = identity::Key::generate();
  const std::string authority_pem =
      identity::authority_certificate(authority_key, "ours", wall_now());
  const auto signed_for = [&](const std::string& run, Role role) {
    const auto key = identity::Key::generate();
    return identity::Credentials{
        other.certificate_pem(),
        identity::member_certificate(authority_key, authority_pem, key.request(),
                                     {run, role, "coordinator"}, std::chrono::hours(1), wall_now()),
        key.pem()};
  };
  auto own = signed_for(identity::fingerprint_of(authority_pem).value(), Role::kCoordinator);
  own.authority_pem = authority_pem;
  const auto dishonest = std::make_shared<Trust>(own);
  const auto transport = make_tcp_transport(
      {.trust = dishonest, .more_trusts = {second}, .takes_joins = true}, clock, recorder.sink());
  const std::string port = transport->listen("127.0.0.1:0").value();
  const auto forged = signed_for(other.fingerprint(), Role::kIsland);
  Member forger(std::make_shared<Trust>(forged));
  for (const Plane plane : {Plane::kControl, Plane::kJoin}) {
    EXPECT_THAT(forger.recorder.wait_lost(forger.transport->connect(port, plane)),
                HasSubstr("does not take this side's certificate"));
  }
  EXPECT_EQ(recorder.num_events(), 0U);
  EXPECT_THAT(dishonest->objection(*identity::facts_of(forged.certificate_pem)),
              HasSubstr("of another run"));
}

TEST_F(SeveralRunsTest, StrangersAskForTheRunThatTheyWereInvitedTo) {
  Member stranger(std::shared_ptr<Trust>(Trust::stranger(other.fingerprint())));
  stranger.transport->connect(at, Plane::kJoin);
  const ConnectionId in = recorder.wait_opened(true, Plane::kJoin);
  EXPECT_EQ(recorder.opened(in).run, other.fingerprint());
  EXPECT_FALSE(recorder.opened(in).certificate);
}

TEST_F(SeveralRunsTest, ItCallsAsAMemberOfEachAndRevokesInEach) {
  Member ours(credentials_of(authority, Role::kIsland, "reef"));
  Member theirs(credentials_of(other, Role::kIsland, "reef"));
  const std::string our_address = ours.listen();
  const std::string their_address = theirs.listen();
  const ConnectionId to_ours = both->connect_as(authority.fingerprint(), our_address, Plane::kBulk);
  const ConnectionId to_theirs = both->connect_as(other.fingerprint(), their_address, Plane::kBulk);
  EXPECT_EQ(theirs.recorder.opened(theirs.recorder.wait_opened(true, Plane::kBulk)).run,
            other.fingerprint());
  EXPECT_EQ(ours.recorder.opened(ours.recorder.wait_opened(true, Plane::kBulk)).run,
            authority.fingerprint());
  EXPECT_THAT(recorder.wait_lost(both->connect_as(other.fingerprint(), our_address, Plane::kBulk)),
              HasSubstr("certificate"));
  other.revoke(identity::Revocation::Kind::kPeer, "reef", wall_now());
  second->revoke(other.revocations());
  EXPECT_THAT(recorder.wait_lost(to_theirs), HasSubstr("revoked"));
  EXPECT_EQ(both->send(to_ours, Bytes(10)), Sent::kAccepted);
}

}  // namespace
}  // namespace atl::net
