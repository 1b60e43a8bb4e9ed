// Coordinator and member, event by event, with a clock made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/member.h"

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Time kStart{};
const Header kRun{.run = "r1", .term = 1};

/// The messages of one kind among the actions, with their receivers.
template <typename Kind>
std::vector<std::pair<uint64_t, Kind>> sent(const Coordinator::Actions& actions) {
  std::vector<std::pair<uint64_t, Kind>> out;
  for (const auto& action : actions) {
    const auto* send = std::get_if<Coordinator::Send>(&action);
    if (send == nullptr) continue;
    if (const auto* kind = std::get_if<Kind>(&send->message)) out.emplace_back(send->to, *kind);
  }
  return out;
}

bool closes(const Coordinator::Actions& actions, uint64_t connection) {
  return std::ranges::any_of(actions, [&](const auto& action) {
    const auto* close = std::get_if<Coordinator::Close>(&action);
    return close != nullptr && close->connection == connection;
  });
}

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest()
      : coordinator({.run = "r1",
                     .version = "0.1.0",
                     .config = "text",
                     .settings = {{"sync.sync_every", "20"}},
                     .min_replicas = 2},
                    kStart) {}

  Hello hello(const std::string& name) {
    return {.version = "0.1.0", .name = name, .address = name + ":1"};
  }
  Coordinator::Actions say(uint64_t connection, const Message& message) {
    return coordinator.received(connection, message, now);
  }
  std::string refusal_of(const Hello& message) {
    coordinator.opened(9, now);
    const auto actions = say(9, message);
    const auto refused = sent<Refused>(actions);
    EXPECT_TRUE(refused.empty() || closes(actions, 9));
    return refused.empty() ? "" : refused[0].second.reason;
  }
  Ready ready() { return {kRun, {{"data", "d"}}, {{0, "p"}}}; }
  /// Islands b (connection 1) and a (2), so that rank is by name and not by arrival.
  void start_two() {
    for (const auto& [connection, name] : {std::pair(1, "b"), std::pair(2, "a")}) {
      coordinator.opened(static_cast<uint64_t>(connection), now);
      say(static_cast<uint64_t>(connection), hello(name));
    }
    say(1, ready());
    start = sent<Start>(say(2, ready())).at(0).second;
  }
  Begin begin(int64_t round, int64_t weight = 10) {
    Header header = kRun;
    header.round = round;
    return {.header = header,
            .step = round * 20,
            .weight = weight,
            .count = 5000,
            .segment_values = 1024};
  }
  Prepared prepared(int64_t round, std::byte mark = {}) {
    Prepared message{.header = {.run = "r1", .term = 1, .round = round, .attempt = 0}};
    message.digest[0] = mark;
    return message;
  }

  Time now = kStart;
  Coordinator coordinator;
  Start start;
};

TEST_F(CoordinatorTest, RefusesNamingTheField) {
  Hello other = hello("a");
  other.protocol = kProtocolVersion + 1;
  EXPECT_EQ(refusal_of(other), "protocol version: the coordinator speaks 4, this island 5");
  other = hello("a");
  other.version = "0.2.0";
  EXPECT_EQ(refusal_of(other), "atoll version: the coordinator runs 0.1.0, this island 0.2.0");
  EXPECT_THAT(refusal_of(hello("a b")), HasSubstr("name: 'a b'"));
  other = hello("a");
  other.settings = {{"sync.sync_every", "30"}};
  EXPECT_EQ(refusal_of(other), "sync.sync_every: the coordinator has 20, this island asked for 30");
  other.settings = {{"sync.nonsense", "1"}};
  EXPECT_THAT(refusal_of(other), HasSubstr("sync.nonsense"));
  other.settings = {{"sync.sync_every", "20"}};
  EXPECT_EQ(refusal_of(other), "");
  coordinator.opened(10, now);
  EXPECT_THAT(sent<Refused>(say(10, hello("a")))[0].second.reason, HasSubstr("name: an island"));
}

TEST_F(CoordinatorTest, MembersAreSortedAndRoundsGoTogether) {
  start_two();
  EXPECT_THAT(start.members, ElementsAre(Peer{"a", "a:1"}, Peer{"b", "b:1"}));
  EXPECT_TRUE(sent<OpenAttempt>(say(1, begin(7, 30))).empty());
  const auto opened = sent<OpenAttempt>(say(2, begin(7, 10)));
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_THAT(opened[0].second.weights, ElementsAre(10, 30));
  EXPECT_THAT(opened[0].second.shares, ElementsAre(2, 3));
  // A second round may begin before the first is committed.
  say(1, begin(8));
  say(2, begin(8));
  EXPECT_TRUE(sent<Commit>(say(1, prepared(8))).empty());
  EXPECT_EQ(sent<Commit>(say(2, prepared(8))).size(), 2U);
  say(2, prepared(7));
  const auto commits = sent<Commit>(say(1, prepared(7)));
  ASSERT_EQ(commits.size(), 2U);
  EXPECT_FALSE(commits[0].second.stop);
  EXPECT_EQ(coordinator.last_round(), 8);
}

TEST_F(CoordinatorTest, DifferentDigestsAreNeverCommitted) {
  start_two();
  say(1, begin(7));
  say(2, begin(7));
  say(1, prepared(7));
  const auto actions = say(2, prepared(7, std::byte{1}));
  EXPECT_TRUE(sent<Commit>(actions).empty());
  const auto ended = sent<RunEnded>(actions);
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_THAT(ended[0].second.reason, AllOf(HasSubstr("'a' has 0100"), HasSubstr("'b' has 0000")));
}

TEST_F(CoordinatorTest, StopTravelsWithTheNextCommit) {
  start_two();
  say(1, begin(7));
  say(2, begin(7));
  say(1, StopRequest{kRun});
  say(1, prepared(7));
  EXPECT_TRUE(sent<Commit>(say(2, prepared(7)))[0].second.stop);
}

TEST_F(CoordinatorTest, LossEndsTheRunForTheOthers) {
  start_two();
  say(1, begin(0));
  say(2, begin(0));
  say(1, prepared(0));
  say(2, prepared(0));
  const auto ended = sent<RunEnded>(coordinator.lost(2, "reset", now));
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].first, 1U);
  EXPECT_THAT(ended[0].second.reason,
              AllOf(HasSubstr("island 'a' was lost: reset"),
                    HasSubstr("last committed round is 0 (step 0)"), HasSubstr("to resume")));
  EXPECT_TRUE(coordinator.finished());
  EXPECT_TRUE(coordinator.lost(1, "later", now).empty());
}

TEST_F(CoordinatorTest, SilenceIsALossAndHeartbeatsPreventIt) {
  start_two();
  for (int i = 0; i < 29; ++i) {
    now += seconds(1);
    say(1, Heartbeat{.header = kRun, .step = i});
    EXPECT_EQ(sent<Alive>(coordinator.tick(now)).size(), 2U);
  }
  EXPECT_EQ(coordinator.status(now).islands[1].step, 28);
  now += seconds(3);
  EXPECT_THAT(sent<RunEnded>(coordinator.tick(now))[0].second.reason,
              HasSubstr("island 'a' was lost: no word from it for 30 s"));
}

TEST_F(CoordinatorTest, StatusTellsStatesCommitsAndEvents) {
  coordinator.opened(1, now);
  say(1, hello("b"));
  now += seconds(5);
  RunStatus run = coordinator.status(now);
  EXPECT_EQ(run.state, RunState::kGathering);
  EXPECT_EQ(std::pair(run.live, run.wanted), std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(run.islands.at(0).state, IslandState::kJoining);
  EXPECT_EQ(run.islands[0].heard_s, 5);
  EXPECT_FALSE(run.islands[0].number || run.islands[0].loss || run.round);
  coordinator.lost(1, "reset", now);
  EXPECT_TRUE(coordinator.status(now).islands.empty());

  start_two();
  say(1, Heartbeat{.header = kRun, .step = 3, .loss = 2.5, .tokens_per_s = 100});
  for (const uint64_t island : {1, 2}) say(island, begin(1, island == 1 ? 30 : 0));
  for (const uint64_t island : {1, 2}) say(island, prepared(1));
  run = coordinator.status(now);
  EXPECT_EQ(run.state, RunState::kTraining);
  EXPECT_EQ(std::tuple(run.round, run.step, run.live), std::tuple(1, 20, 2));
  EXPECT_EQ(std::tuple(run.committed_tokens, run.participating), std::tuple(30, 2));
  EXPECT_EQ(run.averaged_share, 0.5);
  EXPECT_EQ(std::tuple(run.islands[0].name, run.islands[0].number), std::tuple("a", 0));
  EXPECT_FALSE(run.islands[0].loss);
  EXPECT_EQ(std::tuple(run.islands[1].loss, run.islands[1].tokens), std::tuple(2.5, 30));

  now += seconds(2);
  coordinator.lost(2, "reset", now);
  run = coordinator.status(now);
  EXPECT_EQ(run.state, RunState::kOver);
  EXPECT_EQ(run.live, 1);
  EXPECT_EQ(run.islands[0].state, IslandState::kAway);
  EXPECT_EQ(run.islands[0].reason, "reset");
  std::string events;
  for (const auto& event : run.events) events += event.line + "\n";
  EXPECT_THAT(events, AllOf(HasSubstr("'b' joined from b:1"), HasSubstr("'b' was lost: reset"),
                            HasSubstr("the run begins"), HasSubstr("'a' was lost: reset"),
                            testing::Not(HasSubstr("committed:"))));
  EXPECT_EQ(run.events.back().time_s, 7);
}

TEST_F(CoordinatorTest, AliveSaysForHowLongNothingMoved) {
  start_two();
  const auto quiet_ms = [&] {
    now += seconds(10);
    return sent<Alive>(coordinator.tick(now)).at(0).second.quiet_ms;
  };
  say(1, Heartbeat{.header = kRun, .moved = 5});
  say(2, Heartbeat{.header = kRun});
  EXPECT_EQ(quiet_ms(), 10'000U);
  say(1, Heartbeat{.header = kRun, .moved = 5});
  say(2, Heartbeat{.header = kRun});
  EXPECT_EQ(quiet_ms(), 20'000U);
  say(1, Heartbeat{.header = kRun, .moved = 5});
  say(2, Heartbeat{.header = kRun, .moved = 1});
  EXPECT_EQ(quiet_ms(), 10'000U);
}

TEST_F(CoordinatorTest, LeavingIsNoLoss) {
  start_two();
  EXPECT_EQ(sent<Goodbye>(say(1, Leave{kRun})).size(), 1U);
  EXPECT_TRUE(sent<RunEnded>(coordinator.lost(1, "closed", now)).empty());
  now += seconds(20);
  say(2, Heartbeat{.header = kRun});
  now += seconds(20);
  coordinator.tick(now);
  EXPECT_FALSE(coordinator.finished());
  const auto actions = say(2, Leave{kRun});
  EXPECT_TRUE(std::get<Coordinator::Finished>(actions.back()).result.has_value());
}

TEST_F(CoordinatorTest, RoundThatAnIslandWillNeverBeginEndsTheRun) {
  start_two();
  say(1, Leave{kRun});
  EXPECT_THAT(sent<RunEnded>(say(2, begin(3)))[0].second.reason,
              HasSubstr("island 'b' left before round 3, which 'a' has begun"));
}

/// What an island must not say once the run has begun; each ends the run, naming it.
TEST_F(CoordinatorTest, ViolationsNameTheIsland) {
  Header stale = kRun;
  stale.term = 0;
  Begin weightless = begin(1);
  weightless.weight = -1;
  for (const Message& message :
       {Message(Ready{kRun, {}, {{0, "p"}}}), Message(Heartbeat{.header = stale}),
        Message(weightless), Message(begin(-3)), Message(prepared(4)), Message(Alive{kRun}),
        Message(Part{.header = kRun})}) {
    CoordinatorTest::coordinator =
        Coordinator({.run = "r1", .version = "0.1.0", .min_replicas = 2}, now);
    start_two();
    const auto ended = sent<RunEnded>(say(1, message));
    ASSERT_EQ(ended.size(), 2U);
    EXPECT_THAT(ended[0].second.reason, HasSubstr("island 'b' broke the protocol"));
  }
}

TEST_F(CoordinatorTest, DifferentSnapshotsAreNamed) {
  start_two();
  say(1, begin(7));
  Begin other = begin(7);
  other.count = 4;
  EXPECT_THAT(sent<RunEnded>(say(2, other))[0].second.reason,
              HasSubstr("islands 'b' and 'a' differ: 5000 values against 4"));
}

TEST_F(CoordinatorTest, AbstainersAreAllowedAndLogged) {
  start_two();
  Begin abstaining = begin(7);
  abstaining.weight = 0;
  say(1, abstaining);
  const auto opened = sent<OpenAttempt>(say(2, begin(7)));
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_THAT(opened[0].second.weights, testing::Contains(0));
  say(1, prepared(7));
  std::string log;
  for (const auto& action : say(2, prepared(7))) {
    if (const auto* line = std::get_if<Coordinator::Log>(&action)) log += line->line;
  }
  EXPECT_THAT(log, HasSubstr("without 'b' (abstained)"));
}

class MemberTest : public testing::Test {
 protected:
  MemberTest() : member({.name = "a", .version = "0.1.0"}) {
    member.connected("a:1", kStart);
    member.received(Welcome{kRun, "text"}, kStart);
    member.ready({}, {{0, "p"}});
    member.received(start(), kStart);
  }
  static Start start() { return {kRun, 1, 0, {{"a", "a:1"}, {"b", "b:1"}}}; }
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
  EXPECT_TRUE(std::holds_alternative<Member::Exchange>(member.received(attempt(), kStart).at(0)));
  Digest digest{};
  member.prepared(3, 0, digest);
  EXPECT_TRUE(std::holds_alternative<Member::Committed>(
      member.received(Commit{at(3), digest}, kStart).at(0)));
}

TEST_F(MemberTest, RefusesACommitItDidNotPrepare) {
  begin();
  EXPECT_THAT(failure_of(member.received(Commit{at(3), {}}, kStart)), HasSubstr("Commit"));
}

TEST_F(MemberTest, RefusesACommitOfAnotherDigest) {
  begin();
  member.received(attempt(), kStart);
  member.prepared(3, 0, {});
  Commit other{at(3), {}};
  other.digest[5] = std::byte{1};
  EXPECT_THAT(failure_of(member.received(other, kStart)), HasSubstr("broke the protocol"));
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

TEST_F(MemberTest, SilentCoordinatorIsLost) {
  EXPECT_EQ(failure_of(member.tick(kStart + seconds(29))), "");
  member.received(Alive{kRun}, kStart + seconds(29));
  EXPECT_EQ(failure_of(member.tick(kStart + seconds(58))), "");
  EXPECT_THAT(failure_of(member.tick(kStart + seconds(60))),
              AllOf(HasSubstr("the coordinator was lost: no word"), HasSubstr("to resume")));
}

TEST_F(MemberTest, KnowsWhenOthersLastMoved) {
  member.received(Alive{kRun, 4000}, kStart + seconds(9));
  EXPECT_EQ(member.last_moved(), kStart + seconds(5));
  member.received(Alive{kRun, ~uint64_t{0}}, kStart + seconds(9));
  EXPECT_LT(member.last_moved(), kStart);
}

TEST_F(MemberTest, TroubleWaitsForTheCoordinatorsVerdict) {
  member.trouble("no link to b", kStart);
  EXPECT_EQ(failure_of(member.tick(kStart + seconds(1))), "");
  EXPECT_EQ(failure_of(member.received(RunEnded{kRun, "b was lost"}, kStart)), "b was lost");
}

TEST_F(MemberTest, TroubleWithoutVerdictFailsByItself) {
  member.trouble("no link to b", kStart);
  EXPECT_EQ(failure_of(member.tick(kStart + seconds(2))), "no link to b");
}

TEST_F(MemberTest, WhoHasLeftDoesNotFail) {
  member.leave();
  EXPECT_TRUE(std::holds_alternative<Member::Left>(member.coordinator_lost("closed").at(0)));
}

}  // namespace
}  // namespace atl::swarm
