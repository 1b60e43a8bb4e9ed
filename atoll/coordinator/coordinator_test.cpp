// The coordinator's rounds, refusals and status.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "atoll/testing/coordinator_harness.h"

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST_F(CoordinatorTest, RefusesNamingTheField) {
  Hello other = hello("a");
  other.protocol = kProtocolVersion + 1;
  EXPECT_EQ(refusal_of(other),
            fmt::format("protocol version: the coordinator speaks {}, this island {}",
                        kProtocolVersion, kProtocolVersion + 1));
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

TEST_F(CoordinatorTest, MembersAreNumberedByNameAndRoundsGoTogether) {
  start_two();
  EXPECT_THAT(start.members, ElementsAre(Peer{0, "a", "a:1"}, Peer{1, "b", "b:1"}));
  EXPECT_THAT(start.units, ElementsAre(Units{0, 2, 8})) << "twice the steps ahead, every other";
  EXPECT_TRUE(sent<OpenAttempt>(say(1, begin(7, 30))).empty());
  const auto opened = sent<OpenAttempt>(say(2, begin(7, 10)));
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_THAT(opened[0].second.members, ElementsAre(0, 1));
  EXPECT_THAT(opened[0].second.weights, ElementsAre(10, 30));
  EXPECT_THAT(opened[0].second.shares, ElementsAre(2, 3));
  say(2, prepared(7));
  const auto commits = sent<Commit>(say(1, prepared(7)));
  ASSERT_EQ(commits.size(), 2U);
  EXPECT_FALSE(commits[0].second.stop);
  EXPECT_EQ(commits[0].second.index, 0U);
  EXPECT_THAT(commits[0].second.members, ElementsAre(0, 1));
  EXPECT_EQ(coordinator.book().last_round(), 7);
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

// A coordinator that is a directory of servers ends well, whoever came to train.
TEST_F(CoordinatorTest, AStopBeforeTheRunBeganIsNoFailure) {
  coordinator.opened(1, now);
  say(1, hello("a"));
  const auto actions = coordinator.request_stop(now);
  EXPECT_EQ(sent<RunEnded>(actions).size(), 1U);
  ASSERT_EQ(told(actions).size(), 1U);
  EXPECT_EQ(told(actions)[0].kind, RunNotBegun::kKind);
  const auto* finished = std::get_if<Coordinator::Finished>(&actions.back());
  ASSERT_NE(finished, nullptr);
  EXPECT_TRUE(finished->result);
}

TEST_F(CoordinatorTest, AStopWhileAllIslandsAreAwayIsAFailure) {
  start_two();
  coordinator.lost(1, "gone", now);
  coordinator.lost(2, "gone", now);
  const auto actions = coordinator.request_stop(now);
  ASSERT_FALSE(actions.empty());
  const auto* finished = std::get_if<Coordinator::Finished>(&actions.back());
  ASSERT_NE(finished, nullptr);
  EXPECT_FALSE(finished->result);
}

TEST_F(CoordinatorTest, ACommitFromBeforeARequestToStopIsNotToldWithIt) {
  start_two();
  commit(0);
  say(1, StopRequest{kRun});
  coordinator.lost(2, "reset", now);
  coordinator.opened(5, now);
  const auto back = say(5, Resume{.header = kRun, .number = 0, .name = "a", .num_leased = 8});
  ASSERT_EQ(sent<Commit>(back).size(), 1U);
  EXPECT_FALSE(sent<Commit>(back)[0].second.stop) << "the other one goes on to the next round";
}

TEST_F(CoordinatorTest, WhoEndTogetherDoNotStopWithoutEachOther) {
  for (const bool ends_together : {false, true}) {
    CoordinatorOptions own = options();
    own.min_replicas = 2;
    own.ends_together = ends_together;
    Coordinator run(own, {}, kStart);
    run.begin();
    start_two(run);
    run.received(1, begin(0), now);
    run.received(2, begin(0), now);
    run.received(1, StopRequest{kRun}, now);
    const auto opened = sent<OpenAttempt>(run.lost(2, "reset", now));
    EXPECT_EQ(opened.size(), ends_together ? 0U : 1U);
    EXPECT_EQ(run.status(now).alarm.empty(), !ends_together);
  }
}

TEST_F(CoordinatorTest, RecordsComeBeforeWhatDependsOnThem) {
  start_two();
  say(1, begin(7));
  say(2, begin(7));
  say(1, prepared(7));
  bool is_kept = false;
  for (const auto& action : say(2, prepared(7))) {
    const auto* persist = std::get_if<Coordinator::Persist>(&action);
    is_kept = is_kept || (persist != nullptr && std::holds_alternative<Committed>(persist->record));
    const auto* send = std::get_if<Coordinator::Send>(&action);
    if (send != nullptr && std::holds_alternative<Commit>(send->message)) {
      EXPECT_TRUE(is_kept);
    }
  }
  EXPECT_TRUE(is_kept);
}

TEST_F(CoordinatorTest, TheOthersGoOnWithoutALostIsland) {
  start_two();
  say(1, begin(0));
  say(2, begin(0));
  say(1, prepared(0));  // Island b.
  const auto commits = sent<Commit>(coordinator.lost(2, "reset", now));
  ASSERT_EQ(commits.size(), 1U) << "all who are left have completed the attempt: it stands";
  EXPECT_THAT(commits[0].second.members, ElementsAre(0, 1));
  const auto opened = sent<OpenAttempt>(say(1, begin(1)));
  ASSERT_EQ(opened.size(), 1U);
  EXPECT_THAT(opened[0].second.members, ElementsAre(1));
}

TEST_F(CoordinatorTest, AnAttemptWithALostIslandIsFollowedByAnother) {
  start_two();
  say(1, begin(0));
  say(2, begin(0));
  const auto opened = sent<OpenAttempt>(coordinator.lost(2, "reset", now));
  ASSERT_EQ(opened.size(), 1U);
  EXPECT_EQ(opened[0].second.header.attempt, 1);
  EXPECT_THAT(opened[0].second.members, ElementsAre(1));
}

TEST_F(CoordinatorTest, SilenceIsALossAndHeartbeatsPreventIt) {
  start_two();
  for (int i = 0; i < 29; ++i) {
    now += std::chrono::milliseconds(500);
    say(1, Heartbeat{.header = kRun, .step = i});
    if (i < 2) say(2, Heartbeat{.header = kRun});
    coordinator.tick(now);
  }
  EXPECT_EQ(coordinator.status(now).islands[1].step, 28);
  std::string log;
  const auto opened = sent<OpenAttempt>(say(1, begin(0)));
  ASSERT_EQ(opened.size(), 1U) << "a is away";
  EXPECT_THAT(opened[0].second.members, ElementsAre(1));
}

TEST_F(CoordinatorTest, ACoordinatorThatSleptBlamesNobody) {
  start_two();
  now += seconds(60);
  coordinator.tick(now);
  say(1, begin(0));
  EXPECT_EQ(sent<OpenAttempt>(say(2, begin(0))).size(), 2U);
}

TEST_F(CoordinatorTest, AShortPauseOfTheCoordinatorIsNoSilenceOfTheIslands) {
  for (const int pause_ms : {900, 1500, 2000, 2500}) {
    Coordinator slow(options(), {}, now);
    slow.begin();
    start_two(slow);
    for (int i = 0; i < 60; ++i) {
      now += std::chrono::milliseconds(200);
      for (const uint64_t connection : {1, 2}) slow.received(connection, Heartbeat{kRun}, now);
      slow.tick(now);
    }
    now += std::chrono::milliseconds(pause_ms);
    slow.received(1, Heartbeat{kRun}, now);  // The other one's is still unread.
    slow.tick(now);
    EXPECT_EQ(slow.status(now).live, 2) << pause_ms;
  }
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
  EXPECT_EQ(run.state, RunState::kTraining);
  EXPECT_EQ(run.live, 1);
  EXPECT_EQ(run.islands[0].state, IslandState::kAway);
  EXPECT_EQ(run.islands[0].reason, "reset");
  std::string events;
  for (const auto& event : run.events) events += event.line + "\n";
  EXPECT_THAT(events, AllOf(HasSubstr("'b' came from b:1"), HasSubstr("'b' was lost"),
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

TEST_F(CoordinatorTest, AliveSaysWhyNoRoundGoesOn) {
  coordinator.opened(1, now);
  say(1, hello("a"));
  say(1, ready());
  const auto waits = [&] {
    return sent<Alive>(coordinator.tick(now += seconds(1))).at(0).second.waits;
  };
  EXPECT_EQ(waits(), "1 of 2 islands are here");
  coordinator.opened(2, now);
  say(2, hello("b"));
  say(2, ready());
  EXPECT_EQ(waits(), "");
}

/// Who is cut off trains on with them. A slow island is not given more than it will use.
TEST_F(CoordinatorTest, InElasticPaceRowsLastForSomeTimeAhead) {
  CoordinatorOptions elastic = options();
  elastic.round_units = 1'000'000;
  Coordinator run(elastic, {}, now);
  run.begin();
  std::map<uint64_t, int64_t> granted;
  const auto take = [&](const Coordinator::Actions& actions) {
    for (const auto& [to, message] : sent<Start>(actions)) granted[to] += num_units(message.units);
    for (const auto& [to, message] : sent<Lease>(actions)) granted[to] += num_units(message.units);
  };
  take(start_two(run));
  std::map<uint64_t, int64_t> trained;
  for (int i = 0; i < 200; ++i) {
    now += std::chrono::milliseconds(100);
    for (const uint64_t island : {1, 2}) {
      const int64_t wanted = (i + 1) * (island == 1 ? 4 : 1);  // In tenths of a second.
      trained[island] = std::min(wanted, granted[island]);
      take(run.received(island, Heartbeat{.header = kRun, .num_trained = trained[island]}, now));
    }
  }
  for (const uint64_t island : {1, 2}) {
    const int64_t ten_seconds = island == 1 ? 400 : 100;
    EXPECT_GE(granted[island] - trained[island], ten_seconds * 9 / 10) << island;
    EXPECT_LE(granted[island] - trained[island], ten_seconds * 14 / 10) << island;
  }
}

TEST_F(CoordinatorTest, WhoIsHeardAndHoldsUpARoundIsRemovedInTime) {
  CoordinatorOptions patient = options();
  patient.round_timeout = seconds(60);
  Coordinator run(patient, {}, now);
  run.begin();
  start_two(run);
  run.received(1, begin(0), now);  // Island b; a trains on, slowly.
  const auto pass = [&](int for_s, auto trained_by_a) {
    Coordinator::Actions last;
    for (int i = 0; i < 5 * for_s; ++i) {
      now += std::chrono::milliseconds(200);
      run.received(1, Heartbeat{.header = kRun}, now);
      run.received(2, Heartbeat{.header = kRun, .num_trained = trained_by_a(i)}, now);
      for (auto& action : run.tick(now)) last.push_back(std::move(action));
    }
    return last;
  };
  EXPECT_TRUE(sent<Refused>(pass(150, [](int i) { return i / 250; })).empty()) << "a step in 50 s";
  EXPECT_TRUE(sent<Refused>(pass(50, [](int) { return 3; })).empty());
  const auto actions = pass(20, [](int) { return 3; });
  ASSERT_EQ(sent<Refused>(actions).size(), 1U);
  EXPECT_EQ(sent<Refused>(actions)[0].first, 2U);
  EXPECT_THAT(sent<Refused>(actions)[0].second.reason, HasSubstr("it has not begun round 0"));
  ASSERT_EQ(sent<OpenAttempt>(actions).size(), 1U);
  EXPECT_THAT(sent<OpenAttempt>(actions)[0].second.members, ElementsAre(1));
}

TEST_F(CoordinatorTest, LeavingIsNoLoss) {
  start_two();
  EXPECT_EQ(sent<Goodbye>(say(1, Leave{kRun})).size(), 1U);
  EXPECT_TRUE(sent<RunEnded>(coordinator.lost(1, "closed", now)).empty());
  EXPECT_FALSE(coordinator.finished());
  const auto actions = say(2, Leave{kRun});
  EXPECT_TRUE(std::get<Coordinator::Finished>(actions.back()).result.has_value());
}

TEST_F(CoordinatorTest, WhoLeavesStaysWhileOthersLackWhatItHas) {
  start_two();
  say(1, begin(0));
  say(2, begin(0));
  say(1, prepared(0));
  coordinator.lost(2, "reset", now);  // Island a has no result of round 0.
  coordinator.opened(5, now);
  say(5, Resume{.header = kRun, .number = 0, .name = "a", .num_leased = 8});
  EXPECT_TRUE(sent<Goodbye>(say(1, Leave{kRun})).empty());
  EXPECT_FALSE(coordinator.finished());
  EXPECT_EQ(sent<Goodbye>(say(5, CaughtUp{kRun, 1})).size(), 1U);
}

TEST_F(CoordinatorTest, ARoundDoesNotWaitForWhoHasLeft) {
  start_two();
  say(1, Leave{kRun});
  EXPECT_EQ(sent<OpenAttempt>(say(2, begin(3))).size(), 1U);
}

TEST_F(CoordinatorTest, PairsThatCannotReachEachOtherAreParted) {
  start_two();
  say(1, begin(0, 30));
  say(2, begin(0, 10));
  EXPECT_TRUE(sent<OpenAttempt>(say(1, LinkState{kRun, 0, false, "cut"})).empty());
  const auto opened = sent<OpenAttempt>(coordinator.tick(now += seconds(3)));
  ASSERT_EQ(opened.size(), 1U);
  EXPECT_THAT(opened[0].second.members, ElementsAre(1)) << "the least weight is left out";
}

/// What was on its way when the link broke is sent again in another attempt, although the link is
/// not trusted in that round.
TEST_F(CoordinatorTest, WhereAllAreNeededRoundsWaitForALink) {
  CoordinatorOptions both = options();
  both.min_replicas = 2;
  coordinator = Coordinator(both, {}, now);
  coordinator.begin();
  start_two();
  for (const uint64_t connection : {1, 2}) say(connection, begin(0));
  EXPECT_TRUE(sent<OpenAttempt>(say(1, LinkState{kRun, 0, false, "cut"})).empty());
  say(1, prepared(0));
  say(2, prepared(0));
  EXPECT_EQ(coordinator.book().num_commits(), 0U);
  const auto opened = sent<OpenAttempt>(say(1, LinkState{kRun, 0, true, ""}));
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_EQ(opened[0].second.header.attempt, 1);
  EXPECT_THAT(opened[0].second.members, ElementsAre(0, 1));
}

/// Islands b (connection 1), a (2) and c (3), in round 0 of three members.

/// It may be made again at once: nothing is decided before.
TEST_F(ThreeIslandsTest, APairThatCannotReachEachOtherIsPartedAfterAWhile) {
  EXPECT_THAT(told(say(1, LinkState{kRun, 0, false, "cut"})),  // b cannot reach a.
              ElementsAre(Event(LinkLost{.islands = {"b", "a"}, .reason = "cut"})));
  EXPECT_TRUE(sent<OpenAttempt>(say(2, LinkState{kRun, 1, false, "cut"})).empty());
  now += seconds(3);
  const auto actions = coordinator.tick(now);
  const auto opened = sent<OpenAttempt>(actions);
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_EQ(opened[0].second.header.attempt, 1);
  EXPECT_THAT(opened[0].second.members, ElementsAre(0, 2));
  EXPECT_THAT(told(actions),
              Contains(Event(IslandUnreachable{.island = "b", .other = "a", .round = 0})));
}

/// What was on its way is sent again.
TEST_F(ThreeIslandsTest, ALinkThatIsMadeAgainAtOnceIsFollowedByAnotherAttemptOfAll) {
  say(1, LinkState{kRun, 0, false, "reset"});
  const auto actions = say(1, LinkState{kRun, 0, true, ""});
  const auto opened = sent<OpenAttempt>(actions);
  ASSERT_EQ(opened.size(), 3U);
  EXPECT_THAT(opened[0].second.members, ElementsAre(0, 1, 2));
  EXPECT_THAT(told(actions), ElementsAre(Event(LinkBack{.islands = {"a", "b"}, .way = "direct"})));
}

/// Connections stand, and what is sent over them does not come.
TEST_F(ThreeIslandsTest, ALinkThatBreaksAgainIsDoneWithoutForLonger) {
  const auto breaks = [&] {
    say(1, LinkState{kRun, 0, false, "nothing came"});
    return sent<OpenAttempt>(say(1, LinkState{kRun, 0, true, ""})).at(0).second;
  };
  const auto next = [&](const OpenAttempt& open) {
    const int64_t round = open.header.round;
    for (const uint64_t connection : {1, 2, 3}) {
      Prepared message = prepared(round, {}, std::vector<double>(open.members.size(), 1));
      message.header.attempt = open.header.attempt;
      say(connection, message);
    }
    say(1, begin(round + 1));
    say(2, begin(round + 1));
    return sent<OpenAttempt>(say(3, begin(round + 1))).at(0).second;
  };
  OpenAttempt open = breaks();
  EXPECT_THAT(open.members, SizeIs(3)) << "once is an accident";
  open = breaks();
  EXPECT_THAT(open.members, SizeIs(2)) << "round 0";
  open = next(open);
  EXPECT_THAT(open.members, SizeIs(3)) << "round 1 tries it again";
  open = breaks();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(open.members, SizeIs(2)) << open.header.round;
    open = next(open);
  }
  EXPECT_THAT(open.members, SizeIs(3)) << "round 3";
  open = next(open);  // It has carried a round: all is forgotten.
  EXPECT_THAT(breaks().members, SizeIs(3));
}

/// It may be alive, but it takes no part: no sign of life.
TEST_F(CoordinatorTest, WordsOfAnEarlierTermAreNotHeard) {
  Book book;
  book.apply(TermBegan{1});
  CoordinatorOptions own = options();
  Coordinator second(own, book, now);
  second.begin();
  start_two(second);
  std::vector<Event> events;
  for (int i = 0; i < 400 && events.empty(); ++i) {
    now += std::chrono::milliseconds(100);
    second.received(1, Heartbeat{.header = kRun}, now);  // Of term 1.
    Header header = kRun;
    header.term = 2;
    second.received(2, Heartbeat{.header = header}, now);
    events = told(second.tick(now));
  }
  ASSERT_FALSE(events.empty());
  EXPECT_THAT(events[0].sentence, HasSubstr("island 'b' was lost: no word from it"));
}

/// What an island must not say once the run has begun; it is put out, and the others go on.
TEST_F(CoordinatorTest, ViolationsNameTheIsland) {
  Header later = kRun;
  later.term = 2;
  Begin weightless = begin(1);
  weightless.weight = -1;
  Begin greedy = begin(1);
  greedy.num_trained = 100;
  for (const Message& message :
       {Message(Ready{kRun, {}, {{0, "p"}}}), Message(Heartbeat{.header = later}),
        Message(weightless), Message(greedy), Message(begin(-3)), Message(Alive{kRun}),
        Message(Part{.header = kRun})}) {
    CoordinatorTest::coordinator = Coordinator(options(), {}, now);
    coordinator.begin();
    start_two();
    const auto actions = say(1, message);
    ASSERT_EQ(sent<Refused>(actions).size(), 1U);
    EXPECT_THAT(sent<Refused>(actions)[0].second.reason,
                HasSubstr("island 'b' broke the protocol"));
    EXPECT_TRUE(closes(actions, 1));
    EXPECT_EQ(sent<View>(actions).size(), 1U);
    EXPECT_FALSE(coordinator.finished());
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
  EXPECT_THAT(opened[0].second.weights, Contains(0));
  say(1, prepared(7));
  const std::vector<Event> events = told(say(2, prepared(7)));
  ASSERT_EQ(events.size(), 1U);
  const std::pair<std::string, Event::Value> abstainers{"abstainers",
                                                        std::vector<std::string>{"b"}};
  EXPECT_THAT(events[0].fields, Contains(abstainers));
}

}  // namespace
}  // namespace atl::swarm
