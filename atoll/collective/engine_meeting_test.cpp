// One engine alone that is told where to meet another.
#include <gmock/gmock.h>

#include "atoll/testing/engine_harness.h"

namespace atl::collective {
namespace {

using std::chrono::seconds;
using testing::IsEmpty;
using testing::SizeIs;

/// "a" has number 0, so that "b" is the one that calls.
class MeetingTest : public EngineTest {
 protected:
  void lose_b() { handle(net::Lost{.connection = kBulk, .reason = "reset"}); }
  void meet(bool may_punch = true) {
    from_coordinator(
        swarm::Meet{.header = header(), .other = 1, .relay = "relay:1", .may_punch = may_punch});
  }
  std::vector<swarm::LinkState> links() const {
    return said<swarm::LinkState>(transport_, kControl);
  }
};

TEST_F(MeetingTest, WhoIsCalledComesAsAVisitorAndTheWayIsTold) {
  lose_b();
  engine_.tick(now_ += seconds(1));
  ASSERT_THAT(links(), SizeIs(1));
  EXPECT_FALSE(links()[0].up);
  meet();
  ASSERT_THAT(transport_.meetings, SizeIs(1));
  EXPECT_EQ(transport_.meetings.begin()->second.relay, "relay:1");
  EXPECT_FALSE(transport_.meetings.begin()->second.calls);
  constexpr net::ConnectionId kMet = 300;
  handle(net::Opened{
      .connection = kMet, .inbound = true, .plane = net::Plane::kBulk, .way = net::Way::kRelayed});
  handle(net::Received{.connection = kMet,
                       .frame = swarm::encode(swarm::PeerHello{.header = header(), .number = 1})});
  ASSERT_THAT(links(), SizeIs(2));
  EXPECT_TRUE(links()[1].up);
  EXPECT_EQ(links()[1].way, net::Way::kRelayed);
}

TEST_F(MeetingTest, ALinkThatStandsIsKept) {
  meet();
  EXPECT_THAT(transport_.meetings, IsEmpty());
  EXPECT_THAT(transport_.closed, IsEmpty());
}

TEST_F(MeetingTest, ALinkThatIsNotTrustedIsNot) {
  meet(/*may_punch=*/false);
  ASSERT_THAT(transport_.meetings, SizeIs(1));
  EXPECT_FALSE(transport_.meetings.begin()->second.may_punch);
  EXPECT_THAT(transport_.closed, testing::ElementsAre(kBulk));
}

/// "b" is behind a router that lets nobody in, or this one is: who comes through is taken.
TEST_F(MeetingTest, WhoIsNotTheOneToDialDialsAfterAWhile) {
  lose_b();
  const auto dials = [&] { return transport_.addresses; };
  engine_.tick(now_ += seconds(2));
  EXPECT_THAT(dials(), SizeIs(1)) << "the coordinator's: it is their turn";
  engine_.tick(now_ += seconds(3));
  ASSERT_THAT(dials(), SizeIs(2));
  EXPECT_EQ(dials()[1], "b:1");
}

}  // namespace
}  // namespace atl::collective
