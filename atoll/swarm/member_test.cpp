// A member, event by event, with a clock made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/swarm/member.h"

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Time kStart{};
const Header kRun{.run = "r1", .term = 1};

class MemberTest : public testing::Test {
 protected:
  MemberTest() : member({.name = "a", .version = "0.1.0"}) {
    member.connected("a:1", kStart);
    member.received(Welcome{kRun, "text"}, kStart);
    member.ready({}, {{0, "p"}});
    member.received(start(), kStart);
  }
  static Start start() {
    return {.header = kRun, .members = {{0, "a", "a:1"}, {1, "b", "b:1"}}, .num_replicas = 2};
  }
  static Commit commit(const Digest& digest, uint64_t index = 0) {
    return {.header = at(3),
            .index = index,
            .held = {.round = 3, .step = 1, .digest = digest},
            .count = 10,
            .segment_values = 1,
            .members = {0, 1},
            .weights = {5, 6}};
  }
  template <typename Kind>
  static bool has(const Member::Actions& actions) {
    return std::ranges::any_of(
        actions, [](const auto& action) { return std::holds_alternative<Kind>(action); });
  }
  static Header at(int64_t round) { return {.run = "r1", .term = 1, .round = round, .attempt = 0}; }
  OpenAttempt attempt() { return {at(3), 1, 0, 10, 1, {0, 1}, {5, 6}, {4, 6}}; }
  void begin() { member.begin(3, {.step = 1, .weight = 5, .count = 10, .segment_values = 1}); }
  std::string failure_of(const Member::Actions& actions) {
    if (actions.empty()) return "";
    const auto* failed = std::get_if<Member::Failed>(&actions.back());
    return failed == nullptr ? "" : failed->reason;
  }
  Member member;
};

TEST_F(MemberTest, AppliesOnlyWhatItPrepared) {
  begin();
  EXPECT_TRUE(has<Member::Exchange>(member.received(attempt(), kStart)));
  const Digest digest{};
  member.prepared(3, 0, digest, {.squares = {1, 1}});
  EXPECT_TRUE(has<Member::Committed>(member.received(commit(digest), kStart)));
  EXPECT_TRUE(member.received(commit(digest), kStart).empty()) << "said again";
}

TEST_F(MemberTest, WhoseContributionIsLeftOutAbstainsFromThereOn) {
  begin();
  member.received(attempt(), kStart);
  OpenAttempt next = attempt();
  next.header.attempt = 1;
  next.weights = {0, 6};
  EXPECT_TRUE(has<Member::Exchange>(member.received(next, kStart)));
  member.coordinator_lost("reset", kStart);
  member.connected("a:1", kStart);
  for (const auto& action :
       member.received(Resumed{.header = kRun, .members = start().members}, kStart)) {
    const auto* send = std::get_if<Member::Send>(&action);
    const auto* again = send == nullptr ? nullptr : std::get_if<Begin>(&send->message);
    if (again == nullptr) continue;
    EXPECT_EQ(again->weight, 0);
  }
  next.header.attempt = 2;
  next.weights = {5, 6};
  EXPECT_THAT(failure_of(member.received(next, kStart)), HasSubstr("another weight"));
}

TEST_F(MemberTest, WhatItDidNotPrepareItHasMissed) {
  begin();
  EXPECT_TRUE(has<Member::Missed>(member.received(commit({}), kStart)));
}

TEST_F(MemberTest, WhatItPreparedOtherwiseItHasMissed) {
  begin();
  member.received(attempt(), kStart);
  member.prepared(3, 0, {}, {.squares = {1, 1}});
  Digest other{};
  other[5] = std::byte{1};
  EXPECT_TRUE(has<Member::Missed>(member.received(commit(other), kStart)));
}

TEST_F(MemberTest, CommitsComeInTurn) {
  EXPECT_THAT(failure_of(member.received(commit({}, 1), kStart)), HasSubstr("commit 1, where 0"));
}

TEST_F(MemberTest, ComesBackAsItselfAndSaysAgain) {
  begin();
  member.received(attempt(), kStart);
  const Digest digest{};
  member.prepared(3, 0, digest, {.squares = {1, 1}});
  EXPECT_TRUE(has<Member::Reconnect>(member.coordinator_lost("reset", kStart)));
  const auto back = member.connected("a:1", kStart);
  ASSERT_EQ(back.size(), 1U);
  const auto& resume = std::get<Resume>(std::get<Member::Send>(back[0]).message);
  EXPECT_EQ(resume.number, 0);
  EXPECT_EQ(resume.first_round, 0);
  Header later = kRun;
  later.term = 2;
  const auto said = member.received(Resumed{.header = later, .members = start().members}, kStart);
  bool begins = false;
  for (const auto& action : said) {
    const auto* send = std::get_if<Member::Send>(&action);
    const auto* again = send == nullptr ? nullptr : std::get_if<Begin>(&send->message);
    if (again == nullptr) continue;
    begins = true;
    EXPECT_EQ(again->header.term, 2U);
    EXPECT_EQ(again->header.attempt, 0) << "the last that it knows of";
  }
  EXPECT_TRUE(begins);
  // What it had prepared was committed before the coordinator went away.
  Commit decided = commit(digest);
  decided.header.term = 2;
  EXPECT_TRUE(has<Member::Committed>(member.received(decided, kStart)));
}

TEST_F(MemberTest, MayJoinAgainWhenOnlyItsMembershipIsOver) {
  const auto actions = member.received(Refused{kRun, "you are no member"}, kStart);
  ASSERT_TRUE(has<Member::Failed>(actions));
  EXPECT_EQ(std::get<Member::Failed>(actions.back()).ending, Ending::kMembership);
  EXPECT_TRUE(member.over());
}

TEST_F(MemberTest, KnowsWhetherTheRunThatIsOverIsComplete) {
  const auto ending = [](bool complete) {
    Member other({.name = "b"});
    other.connected("b:1", kStart);
    other.received(Welcome{kRun, "text"}, kStart);
    const auto actions = other.received(RunEnded{kRun, "over", complete}, kStart);
    return std::get<Member::Failed>(actions.back()).ending;
  };
  EXPECT_EQ(ending(true), Ending::kComplete);
  EXPECT_EQ(ending(false), Ending::kFailure);
}

TEST_F(MemberTest, AnOlderTermIsRefused) {
  Header old = kRun;
  old.term = 0;
  EXPECT_THAT(failure_of(member.received(Alive{old}, kStart)), HasSubstr("term 0"));
}

TEST_F(MemberTest, WhoJoinsIsLevelOnlyOnceItHasTheState) {
  member = Member({.name = "a", .version = "0.1.0"});
  member.connected("a:1", kStart);
  member.received(Welcome{kRun, "text"}, kStart);
  member.ready({}, {{0, "p"}});
  Start joins = start();
  joins.joins = true;
  joins.num_commits = 4;
  member.received(joins, kStart);
  EXPECT_FALSE(member.first_round().has_value());
  const auto beat = member.tick(kStart + seconds(1));
  ASSERT_FALSE(beat.empty());
  EXPECT_EQ(std::get<Heartbeat>(std::get<Member::Send>(beat[0]).message).caught_up, 0U);
  const auto level = member.caught_up();
  ASSERT_EQ(level.size(), 1U);
  EXPECT_EQ(std::get<CaughtUp>(std::get<Member::Send>(level[0]).message).num_commits, 4U);
  EXPECT_TRUE(member.caught_up().empty());
}

TEST_F(MemberTest, RefusesImpossibleAttempts) {
  for (const auto& change : std::vector<std::function<void(OpenAttempt&)>>{
           [](auto& m) { m.weights = {5}; }, [](auto& m) { m.weights = {4, 6}; },
           [](auto& m) { m.weights = {5, -6}; }, [](auto& m) { m.shares = {5, 6}; },
           [](auto& m) { m.shares = {11, -1}; }, [](auto& m) { m.count = 11; },
           [](auto& m) { m.segment_values = 2; }, [](auto& m) { m.header.round = 4; },
           [](auto& m) { m.header.run = "r2"; }}) {
    MemberTest::member = Member({.name = "a", .version = "0.1.0"});
    member.connected("a:1", kStart);
    member.received(Welcome{kRun, "text"}, kStart);
    member.ready({}, {{0, "p"}});
    member.received(start(), kStart);
    begin();
    OpenAttempt message = attempt();
    change(message);
    EXPECT_THAT(failure_of(member.received(message, kStart)), HasSubstr("broke the protocol"));
  }
}

TEST_F(MemberTest, SilentCoordinatorIsConnectedAnewUntilThePatienceIsOver) {
  EXPECT_FALSE(has<Member::Reconnect>(member.tick(kStart + seconds(29))));
  member.received(Alive{kRun}, kStart + seconds(29));
  EXPECT_FALSE(has<Member::Reconnect>(member.tick(kStart + seconds(58))));
  EXPECT_TRUE(has<Member::Reconnect>(member.tick(kStart + seconds(60))));
  EXPECT_EQ(failure_of(member.tick(kStart + seconds(600))), "");
  EXPECT_THAT(failure_of(member.tick(kStart + seconds(661))),
              AllOf(HasSubstr("the coordinator was lost: no word"), HasSubstr("to resume")));
}

TEST_F(MemberTest, KnowsWhenOthersLastMoved) {
  member.received(Alive{kRun, 4000}, kStart + seconds(9));
  EXPECT_EQ(member.last_moved(), kStart + seconds(5));
  member.received(Alive{kRun, ~uint64_t{0}}, kStart + seconds(9));
  EXPECT_LT(member.last_moved(), kStart);
}

TEST_F(MemberTest, SaysOnceWhyRoundsWait) {
  const auto waits = [&](const char* why) {
    std::vector<std::string> out;
    for (const auto& action : member.received(Alive{kRun, 0, why}, kStart)) {
      if (const auto* said = std::get_if<Member::Waits>(&action)) out.push_back(said->why);
    }
    return out;
  };
  EXPECT_THAT(waits(""), IsEmpty());
  EXPECT_THAT(waits("1 of 2"), ElementsAre("1 of 2"));
  EXPECT_THAT(waits("1 of 2"), IsEmpty());
  EXPECT_THAT(waits(""), ElementsAre(""));
}

TEST_F(MemberTest, ItsOwnTroubleEndsItAndAnothersDoesNot) {
  EXPECT_EQ(failure_of(member.trouble("b sent nonsense", 1)), "");
  EXPECT_EQ(failure_of(member.trouble("no memory left")), "no memory left");
}

TEST_F(MemberTest, WhoIsLeavingIsDoneWhateverItHears) {
  begin();
  member.leave();
  EXPECT_TRUE(member.received(attempt(), kStart).empty());
  EXPECT_TRUE(member.received(commit({}), kStart).empty());
  EXPECT_TRUE(has<Member::Left>(member.received(RunEnded{kRun, "over"}, kStart)));
}

TEST(MemberNameTest, HelloAsksForTheRunByItsName) {
  Member member({.name = "a", .run_name = "ours"});
  for (int turn = 0; turn < 2; ++turn) {  // Again to a coordinator that has come back.
    const auto actions = member.connected("a:1", kStart);
    ASSERT_EQ(actions.size(), 1u);
    const auto& hello = std::get<Hello>(std::get<Member::Send>(actions[0]).message);
    EXPECT_EQ(hello.header.run, "ours");
    member.received(Welcome{kRun, "text"}, kStart);
    member.coordinator_lost("gone", kStart);
  }
}

}  // namespace
}  // namespace atl::swarm
