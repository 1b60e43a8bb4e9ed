// Who is called at its address, who is told to meet whom where, and the relays that come for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/coordinator/coordinator_server.h"
#include "atoll/testing/coordinator_harness.h"
#include "atoll/testing/sent_frames.h"

namespace atl::swarm {
namespace {

using Answer = AddressCalls::Answer;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

TEST_F(ThreeIslandsTest, TwoMeetAtTheThirdIfThatCanBeCalled) {
  EXPECT_TRUE(sent<Meet>(say(1, LinkState{kRun, 0, false, "cut"})).empty()) << "not known yet";
  const auto actions =
      coordinator.called({.number = 2, .name = "c", .address = "c:1"}, Answer::kItself, "", now);
  const auto told_to_meet = sent<Meet>(actions);
  const auto told_to_host = sent<PassOn>(actions);
  ASSERT_EQ(told_to_meet.size(), 2U);
  ASSERT_THAT(told_to_host, SizeIs(1));
  EXPECT_EQ(told_to_host[0].first, 3U);
  EXPECT_EQ(told_to_host[0].second.circuit, told_to_meet[0].second.circuit);
  EXPECT_EQ(told_to_meet[0].second.circuit, told_to_meet[1].second.circuit);
  EXPECT_EQ(told_to_meet[0].first, 2U) << "a";
  EXPECT_EQ(told_to_meet[0].second.other, 1);
  EXPECT_EQ(told_to_meet[1].first, 1U);
  EXPECT_EQ(told_to_meet[1].second.other, 0);
  EXPECT_TRUE(told_to_meet[0].second.may_punch);
  say(1, LinkState{kRun, 0, true, "", net::Way::kRelayed});
  const RunStatus status = coordinator.status(now);
  ASSERT_EQ(status.ways.size(), 1U);
  EXPECT_EQ(status.ways[0].way, "relayed");
  EXPECT_EQ(status.ways[0].relay, "c");
}

TEST_F(ThreeIslandsTest, WhoCannotBeCalledIsTold) {
  const auto actions = coordinator.called({.number = 2, .name = "c", .address = "c:1"},
                                          Answer::kNobody, "no route to 10.0.0.7", now);
  const auto tried = sent<AddressTried>(actions);
  ASSERT_EQ(tried.size(), 1U);
  EXPECT_EQ(tried[0].first, 3U);
  EXPECT_EQ(tried[0].second.fault, "it is not reached there") << "and nothing of the network here";
  EXPECT_THAT(told(actions),
              ElementsAre(Event(IslandNotReached{
                  .island = "c", .address = "c:1", .reason = "no route to 10.0.0.7"})));
  EXPECT_TRUE(sent<Meet>(say(1, LinkState{kRun, 0, false, "cut"})).empty());
  const RunStatus status = coordinator.status(now);
  EXPECT_EQ(status.islands[2].unreachable, "it is not reached there");
  for (const auto& event : status.events) EXPECT_THAT(event.line, Not(HasSubstr("10.0.0.7")));
}

TEST_F(ThreeIslandsTest, WhoComesBackAgainAndAgainIsCalledOnceAtATime) {
  const auto num_calls = [](const Coordinator::Actions& actions) {
    return std::ranges::count_if(actions, [](const auto& action) {
      return std::holds_alternative<Coordinator::Call>(action);
    });
  };
  int64_t count = 0;
  for (uint64_t connection = 10; connection < 20; ++connection) {
    coordinator.opened(connection, now);
    count += num_calls(say(connection, Resume{.header = kRun, .number = 2, .name = "c"}));
  }
  EXPECT_EQ(count, 0) << "that of its first day is under way";
  coordinator.called({.number = 2, .name = "c", .address = "c:1"}, Answer::kItself, "", now);
  now += AddressCalls::kPause;
  EXPECT_EQ(num_calls(coordinator.tick(now)), 1);
}

TEST_F(ThreeIslandsTest, ARelayIsToldOfAndTakenBeforeIslands) {
  coordinator.called({.number = 2, .name = "c", .address = "c:1"}, Answer::kItself, "", now);
  coordinator.opened(9, now);
  const auto actions =
      say(9, RelayHello{.version = options().version, .name = "meeting", .address = "relay:7"});
  EXPECT_EQ(sent<View>(actions).size(), 1U);
  const auto meets = sent<Meet>(say(1, LinkState{kRun, 0, false, "cut"}));
  ASSERT_EQ(meets.size(), 2U);
  EXPECT_EQ(meets[0].second.relay, "relay:7");
  EXPECT_THAT(told(coordinator.lost(9, "killed", now)),
              ElementsAre(Event(RelayLost{.relay = "meeting", .reason = "killed"})));
  EXPECT_TRUE(coordinator.status(now).relays.empty());
}

TEST_F(ThreeIslandsTest, ARelayOfAnotherVersionIsRefused) {
  coordinator.opened(9, now);
  EXPECT_EQ(sent<Refused>(say(9, RelayHello{.version = "0.0.0", .name = "meeting"})).size(), 1U);
  EXPECT_TRUE(coordinator.status(now).relays.empty());
}

TEST_F(ThreeIslandsTest, WhoseLinkIsNotTrustedMeetAtARelayWithoutTryingItAgain) {
  coordinator.called({.number = 2, .name = "c", .address = "c:1"}, Answer::kItself, "", now);
  EXPECT_EQ(sent<Meet>(say(1, LinkState{kRun, 0, false, "nothing came"})).size(), 2U);
  say(1, LinkState{kRun, 0, true, ""});
  const auto meets = sent<Meet>(say(1, LinkState{kRun, 0, false, "nothing came"}));
  ASSERT_EQ(meets.size(), 2U);
  EXPECT_FALSE(meets[0].second.may_punch);
  EXPECT_TRUE(sent<OpenAttempt>(say(1, LinkState{kRun, 0, true, "", net::Way::kPunched})).empty())
      << "it stands, and is waited for through the relay";
  const auto opened = sent<OpenAttempt>(say(1, LinkState{kRun, 0, true, "", net::Way::kRelayed}));
  ASSERT_EQ(opened.size(), 3U);
}

/// Whom its connection has been lost nobody can meet; it is told when it is back.
TEST_F(ThreeIslandsTest, NobodyIsToldToMeetWhoIsAway) {
  coordinator.called({.number = 2, .name = "c", .address = "c:1"}, Answer::kItself, "", now);
  coordinator.lost(1, "reset", now);
  EXPECT_THAT(sent<Meet>(say(2, LinkState{kRun, 1, false, "cut"})), IsEmpty());
  coordinator.opened(9, now);
  say(9, Resume{.header = kRun, .number = 1, .name = "b"});
  EXPECT_THAT(sent<Meet>(say(2, LinkState{kRun, 1, false, "cut"})), SizeIs(2));
}

/// What it found out nobody would hear.
TEST(CoordinatorServiceTest, ARunThatIsAbandonedHangsUp) {
  collective::SentFrames transport;
  CoordinatorService service({.run = "r1", .version = "0.1.0", .replicas = 1}, {}, {}, transport,
                             kStart);
  service.handle(net::Opened{.connection = 90, .inbound = true, .plane = net::Plane::kControl},
                 kStart);
  const auto say = [&](const Message& message) {
    service.handle(net::Received{.connection = 90, .frame = encode(message)}, kStart);
  };
  say(Hello{.version = "0.1.0", .name = "a", .address = "a:1"});
  say(Ready{kRun, {{"data", "d"}}, {{0, "p"}}});
  ASSERT_THAT(transport.addresses, ElementsAre("a:1"));
  service.hang_up();
  EXPECT_THAT(transport.closed, ElementsAre(1U));
}

}  // namespace
}  // namespace atl::swarm
