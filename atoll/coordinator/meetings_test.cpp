#include "atoll/coordinator/meetings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const Meetings::Pair kAB{0, 1};
const Meetings::Pair kAC{0, 2};
constexpr Time kNow{seconds(100)};

class MeetingsTest : public testing::Test {
 protected:
  std::vector<Meetings::Meeting> due(Time now = kNow) {
    return meetings.take_due(here, hosts, now);
  }
  void come(uint64_t connection, const std::string& name) {
    std::optional<uint64_t> replaced;
    EXPECT_EQ(meetings.relay_came(connection, name, name + ":1", replaced), "");
  }

  Meetings meetings{Digest{std::byte{7}}};
  std::vector<int32_t> here{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<Meetings::Host> hosts;
};

TEST_F(MeetingsTest, WhoIsAwayIsWaitedForAndNoTryIsCounted) {
  come(5, "one");
  meetings.broke(kAB, kNow);
  here = {0, 2};
  EXPECT_THAT(due(), IsEmpty());
  EXPECT_FALSE(meetings.are_expected({0, 1}, kNow)) << "no round waits for it";
  here = {0, 1};
  EXPECT_THAT(due(kNow + seconds(1)), SizeIs(1));
}

TEST_F(MeetingsTest, NobodyMeetsWhereThereIsNoPlace) {
  meetings.broke(kAB, kNow);
  EXPECT_THAT(due(), IsEmpty());
  hosts = {{0, "a", "a:1"}, {1, "b", "b:1"}};
  EXPECT_THAT(due(), IsEmpty()) << "neither can pass on to itself";
  hosts.push_back({2, "c", "c:1"});
  const auto told = due();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].pair, kAB);
  EXPECT_EQ(told[0].relay, "c:1");
}

TEST_F(MeetingsTest, ItIsTriedAgainElsewhereWithGrowingPauses) {
  come(5, "one");
  come(6, "two");
  meetings.broke(kAB, kNow);
  meetings.broke(kAB, kNow + seconds(1));  // The other end says it too.
  std::vector<std::string> relays;
  Time last = kNow;
  std::vector<Duration> pauses;
  for (Time now = kNow; now < kNow + seconds(600); now += seconds(1)) {
    for (const auto& meeting : due(now)) {
      relays.push_back(meeting.relay);
      pauses.push_back(now - last);
      last = now;
    }
  }
  ASSERT_GE(relays.size(), 6U);
  EXPECT_THAT((std::vector(relays.begin(), relays.begin() + 4)),
              ElementsAre("one:1", "two:1", "one:1", "two:1"));
  EXPECT_THAT(
      (std::vector(pauses.begin(), pauses.begin() + 6)),
      ElementsAre(seconds(0), seconds(10), seconds(20), seconds(40), seconds(80), seconds(120)));
}

TEST_F(MeetingsTest, ANewRelayIsTriedAtOnce) {
  come(5, "one");
  meetings.broke(kAB, kNow);
  EXPECT_THAT(due(), SizeIs(1));
  EXPECT_THAT(due(kNow + seconds(1)), IsEmpty());
  come(6, "two");
  const auto told = due(kNow + seconds(1));
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].relay, "two:1");
}

TEST_F(MeetingsTest, RoundsWaitForTheFirstMeetingAndNoOther) {
  come(5, "one");
  meetings.broke(kAB, kNow);
  EXPECT_FALSE(meetings.are_expected({0, 1}, kNow)) << "they do not know where";
  due();
  EXPECT_TRUE(meetings.are_expected({0, 1}, kNow + seconds(1)));
  EXPECT_FALSE(meetings.are_expected({0, 2}, kNow + seconds(1)));
  due(kNow + seconds(10));
  EXPECT_FALSE(meetings.are_expected({0, 1}, kNow + seconds(11)));
}

TEST_F(MeetingsTest, PairsAreSpreadOverRelaysByWhatTheyCarry) {
  come(5, "one");
  come(6, "two");
  for (const auto& pair : {kAB, kAC}) meetings.broke(pair, kNow);
  const auto told = due();
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_NE(told[0].relay, told[1].relay);
  EXPECT_NE(told[0].circuit, told[1].circuit);
  for (const auto& pair : {kAB, kAC}) meetings.stands(pair, net::Way::kRelayed);
  EXPECT_EQ(meetings.detour(kAB)->relay, "one");
  EXPECT_EQ(meetings.detour(kAC)->relay, "two");
  meetings.stands(kAB, net::Way::kRelayed);  // The other end.
  EXPECT_EQ(meetings.detour(kAB)->relay, "one");
  meetings.broke(kAB, kNow);
  EXPECT_EQ(meetings.detour(kAB), nullptr);
}

TEST_F(MeetingsTest, WhoseDirectWayIsNotTrustedMeetForAnother) {
  come(5, "one");
  meetings.broke(kAB, kNow, /*is_mistrusted=*/true);
  meetings.stands(kAB, net::Way::kDirect);
  const auto told = due();
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_FALSE(told[0].may_punch);
  meetings.stands(kAB, net::Way::kRelayed);
  EXPECT_FALSE(meetings.any_wanted());
}

TEST_F(MeetingsTest, ARelayOfTheSameNameTakesThePlace) {
  come(5, "one");
  std::optional<uint64_t> replaced;
  EXPECT_EQ(meetings.relay_came(6, "one", "elsewhere:1", replaced), "");
  EXPECT_EQ(replaced, 5U);
  EXPECT_EQ(meetings.relay_went(5), std::nullopt);
  ASSERT_THAT(meetings.status(), SizeIs(1));
  EXPECT_EQ(meetings.status()[0].address, "elsewhere:1");
}

TEST_F(MeetingsTest, CircuitsCannotBeToldFromEachOtherWithoutTheSecret) {
  come(5, "one");
  Meetings others{Digest{std::byte{8}}};
  std::optional<uint64_t> replaced;
  others.relay_came(5, "one", "one:1", replaced);
  std::set<net::CircuitId> circuits;
  for (int i = 0; i < 10; ++i) {
    for (Meetings* one : {&meetings, &others}) {
      const Time now = kNow + i * std::chrono::hours(1);
      one->broke(kAB, now);
      for (const auto& meeting : one->take_due(here, {}, now)) circuits.insert(meeting.circuit);
      one->stands(kAB, net::Way::kDirect);
    }
  }
  EXPECT_THAT(circuits, SizeIs(20));
}

/// A member that says again and again that a link broke.
TEST_F(MeetingsTest, NobodyIsToldMoreOftenThanThePausesSay) {
  come(5, "one");
  size_t num_told = 0;
  for (int i = 0; i < 9'000; ++i) {
    const Time now = kNow + i * std::chrono::milliseconds(1);
    meetings.broke(kAB, now);
    num_told += due(now).size();
    meetings.stands(kAB, net::Way::kDirect);
  }
  EXPECT_EQ(num_told, Meetings::kBurst);
}

TEST_F(MeetingsTest, WhoIsForgottenMeetsNobody) {
  come(5, "one");
  meetings.broke(kAB, kNow);
  meetings.forget(0);
  EXPECT_THAT(due(), IsEmpty());
}

}  // namespace
}  // namespace atl::swarm
