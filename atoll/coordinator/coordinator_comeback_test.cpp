// Members whose processes came to their end, and who hold on disk all that they had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "atoll/testing/coordinator_harness.h"

namespace atl::swarm {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

bool begins_anew(const Coordinator::Actions& actions) {
  return std::ranges::any_of(actions, [](const auto& action) {
    const auto* persist = std::get_if<Coordinator::Persist>(&action);
    return persist != nullptr && std::holds_alternative<RunBegan>(persist->record);
  });
}

/// Islands a (number 0, connection 2) and b (number 1, connection 1), of which rounds need two.
class ComebackTest : public CoordinatorTest {
 protected:
  static CoordinatorOptions waiting() {
    CoordinatorOptions options = CoordinatorTest::options();
    options.min_replicas = 2;
    options.keeps_rounds = true;
    return options;
  }
  ComebackTest() : run(waiting(), {}, kStart) {
    run.begin();
    start_two(run);
  }

  Coordinator::Actions say(uint64_t connection, const Message& message) {
    return run.received(connection, message, now);
  }
  Begin begin_trained(int64_t round) {
    Begin message = begin(round);
    message.num_trained = 2 * (round + 1);
    return message;
  }
  void commit(int64_t round) {
    for (const uint64_t connection : {1, 2}) say(connection, begin_trained(round));
    say(1, prepared(round));
    say(2, prepared(round));
    ASSERT_EQ(run.book().last_round(), round);
  }
  /// A round of the two who came back.
  void commit_of(int64_t round) {
    for (const uint64_t connection : {5, 6}) say(connection, begin_trained(round));
    for (const uint64_t connection : {5, 6}) say(connection, prepared(round));
    ASSERT_EQ(run.book().last_round(), round);
  }
  /// What follows when an island of that name is ready that was member `number`.
  Coordinator::Actions come(uint64_t connection, const std::string& name, Former former,
                            int64_t newest_step = 20) {
    run.opened(connection, now);
    Hello first = hello(name);
    first.address = name + ":2";
    say(connection, first);
    Ready message = ready();
    message.checkpoints[newest_step] = "q";
    message.former = std::move(former);
    return say(connection, message);
  }
  /// Who has the result of round 1 on disk, and was not here when it was committed.
  static Former c() { return {.number = 2, .term = 1, .num_leased = 3, .rounds = {1}}; }
  /// A and b came back without the result of round 1 and begin it again; c is away.
  void both_make_again() {
    commit(0);
    ASSERT_EQ(sent<Start>(come(3, "c", {})).size(), 1U);
    run.lost(3, "killed", now);
    commit(1);
    run.lost(1, "killed", now);
    run.lost(2, "killed", now);
    come(5, "b", b(0));
    come(6, "a", a(0));
    now += std::chrono::seconds(11);
    ASSERT_EQ(sent<Start>(run.tick(now)).size(), 2U) << "c is waited for no longer";
    for (const uint64_t connection : {5, 6}) say(connection, begin_trained(1));
  }
  static Former b(int64_t newest_round, int64_t num_leased = 5) {
    return {.number = 1, .term = 1, .num_leased = num_leased, .rounds = {newest_round}};
  }
  static Former a(int64_t newest_round, int64_t num_leased = 5) {
    return {.number = 0, .term = 1, .num_leased = num_leased, .rounds = {newest_round}};
  }

  Coordinator run;
};

TEST_F(ComebackTest, WhileRoundsWaitForItAMemberIsWhatItWas) {
  commit(0);
  run.lost(1, "killed", now);
  const auto actions = come(5, "b", b(0));
  ASSERT_EQ(sent<Start>(actions).size(), 1U);
  const Start first = sent<Start>(actions)[0].second;
  EXPECT_TRUE(first.returns);
  EXPECT_FALSE(first.joins);
  EXPECT_EQ(first.number, 1);
  EXPECT_EQ(first.num_commits, 1U);
  EXPECT_THAT(first.units, ElementsAre(Units{11, 2, 3})) << "behind the five that it had";
  EXPECT_FALSE(begins_anew(actions));
  EXPECT_THAT(sent<Commit>(actions), IsEmpty());
  const auto views = sent<View>(actions);
  ASSERT_FALSE(views.empty());
  EXPECT_EQ(views.back().second.members.at(1).address, "b:2");
  say(2, begin_trained(1));
  EXPECT_EQ(sent<OpenAttempt>(say(5, begin_trained(1))).size(), 2U);
  EXPECT_EQ(run.book().members().size(), 2U);
}

TEST_F(ComebackTest, ARoundThatWasOpenIsExchangedAgain) {
  for (const uint64_t connection : {1, 2}) say(connection, begin_trained(0));
  run.lost(1, "killed", now);
  EXPECT_THAT(sent<OpenAttempt>(come(5, "b", b(-1, 3), 0)), IsEmpty());
  const auto opened = sent<OpenAttempt>(say(5, begin_trained(0)));
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_EQ(opened[0].second.header.attempt, 1);
}

/// The others' word that they cannot reach the process that is no more, said before they heard of
/// the next one, comes after it: rounds need both, and wait until the link stands.
TEST_F(ComebackTest, AnOldReportOfItsLinkLeavesNobodyOut) {
  commit(0);
  run.lost(1, "killed", now);
  come(5, "b", b(0));
  say(2, LinkState{kRun, 1, false, "the connection was lost"});
  say(2, begin_trained(1));
  EXPECT_THAT(sent<OpenAttempt>(say(5, begin_trained(1))), IsEmpty());
  now += std::chrono::seconds(3);  // It might have been made again at once.
  EXPECT_THAT(sent<OpenAttempt>(run.tick(now)), IsEmpty());
  EXPECT_THAT(run.status(now).alarm, HasSubstr("do not reach each other"));
  EXPECT_EQ(sent<OpenAttempt>(say(2, LinkState{kRun, 1, true, ""})).size(), 2U);
  EXPECT_THAT(run.status(now).alarm, IsEmpty());
}

TEST_F(ComebackTest, ALinkThatBrokeWithAProcessIsTrusted) {
  for (const bool is_lost_first : {true, false}) {
    run = Coordinator(waiting(), {}, kStart);
    run.begin();
    start_two(run);
    for (const uint64_t connection : {1, 2}) say(connection, begin_trained(0));
    if (is_lost_first) run.lost(1, "killed", now);
    EXPECT_THAT(sent<OpenAttempt>(say(2, LinkState{kRun, 1, false, "lost"})), IsEmpty())
        << "rounds need two";
    if (!is_lost_first) run.lost(1, "killed", now);
    EXPECT_THAT(sent<OpenAttempt>(come(5, "b", b(-1, 3), 0)), IsEmpty());
    EXPECT_EQ(sent<OpenAttempt>(say(5, begin_trained(0))).size(), 2U);
  }
}

TEST_F(ComebackTest, ACommitThatItLacksFollows) {
  commit(0);
  for (const uint64_t connection : {1, 2}) say(connection, begin_trained(1));
  say(1, prepared(1));
  run.lost(1, "killed", now);
  say(2, prepared(1));
  ASSERT_EQ(run.book().last_round(), 1) << "its part was in it";
  const auto actions = come(5, "b", b(0));
  ASSERT_EQ(sent<Start>(actions).size(), 1U);
  EXPECT_TRUE(sent<Start>(actions)[0].second.returns);
  EXPECT_EQ(sent<Start>(actions)[0].second.num_commits, 1U);
  EXPECT_THAT(sent<Start>(actions)[0].second.held, IsEmpty());
  ASSERT_EQ(sent<Commit>(actions).size(), 1U);
  EXPECT_EQ(sent<Commit>(actions)[0].second.index, 1U);
}

TEST_F(ComebackTest, ItJoinsWhereItIsNotWhatItWas) {
  Former of_another_term = b(0);
  of_another_term.term = 7;
  Former nobody = b(0);
  nobody.number = 9;
  for (const Former& former : {b(0, 1), b(0, 99), a(0), of_another_term, nobody, Former{}}) {
    run = Coordinator(waiting(), {}, kStart);
    run.begin();
    start_two(run);
    commit(0);
    run.lost(1, "killed", now);
    run.opened(5, now);
    say(5, hello("b"));
    Ready message = ready();
    message.former = former;
    const auto started = sent<Start>(say(5, message));
    ASSERT_EQ(started.size(), 1U);
    EXPECT_TRUE(started[0].second.joins) << former.number << " " << former.num_leased;
    EXPECT_FALSE(started[0].second.returns);
  }
}

TEST_F(ComebackTest, ItJoinsWhereTheOthersWentOn) {
  CoordinatorOptions options = waiting();
  options.min_replicas = 1;
  run = Coordinator(options, {}, now);
  run.begin();
  start_two(run);
  commit(0);
  run.lost(1, "killed", now);
  const auto started = sent<Start>(come(5, "b", b(0)));
  ASSERT_EQ(started.size(), 1U);
  EXPECT_TRUE(started[0].second.joins) << "nobody waits for it";
}

TEST_F(ComebackTest, AllAreWhatTheyWereAndNothingIsVoid) {
  commit(0);
  run.lost(1, "killed", now);
  run.lost(2, "killed", now);
  EXPECT_THAT(sent<Start>(come(5, "b", b(0))), IsEmpty()) << "a may come back";
  const auto actions = come(6, "a", a(0));
  ASSERT_EQ(sent<Start>(actions).size(), 2U);
  for (const auto& [connection, message] : sent<Start>(actions)) {
    EXPECT_TRUE(message.returns);
    EXPECT_THAT(message.members, Each(Field(&Peer::address, EndsWith(":2")))) << connection;
  }
  EXPECT_FALSE(begins_anew(actions));
  say(5, begin_trained(1));
  EXPECT_EQ(sent<OpenAttempt>(say(6, begin_trained(1))).size(), 2U);
}

TEST_F(ComebackTest, OneHasWhatTheOtherLost) {
  commit(0);
  commit(1);
  run.lost(1, "killed", now);
  run.lost(2, "killed", now);
  come(5, "b", b(0));
  const auto actions = come(6, "a", a(1));
  ASSERT_EQ(sent<Start>(actions).size(), 2U);
  EXPECT_FALSE(begins_anew(actions));
  ASSERT_EQ(sent<Commit>(actions).size(), 1U);
  EXPECT_EQ(sent<Commit>(actions)[0].first, 5U);
}

/// Both were killed before the last results were on their disks: they make them again, in their
/// order, and whatever comes behind them waits.
TEST_F(ComebackTest, WhatAllLostIsMadeAgain) {
  for (int64_t round = 0; round < 3; ++round) commit(round);
  run.lost(1, "killed", now);
  run.lost(2, "killed", now);
  come(5, "b", b(0, 7));
  const auto actions = come(6, "a", a(0, 7));
  EXPECT_FALSE(begins_anew(actions));
  ASSERT_EQ(sent<Start>(actions).size(), 2U);
  for (const auto& [connection, message] : sent<Start>(actions)) {
    EXPECT_TRUE(message.returns);
    EXPECT_EQ(message.num_commits, 1U);
  }
  EXPECT_THAT(sent<Commit>(actions), IsEmpty());
  for (const int64_t round : {1, 2}) {
    say(5, begin_trained(round));
    EXPECT_EQ(sent<OpenAttempt>(say(6, begin_trained(round))).size(), 2U);
  }
  for (const uint64_t connection : {5, 6}) {
    EXPECT_THAT(sent<Commit>(say(connection, prepared(2))), IsEmpty()) << "behind round 1";
  }
  say(5, prepared(1));
  const auto told_again = sent<Commit>(say(6, prepared(1)));
  ASSERT_EQ(told_again.size(), 4U);
  EXPECT_EQ(told_again[0].second.index, 1U);
  EXPECT_EQ(told_again[3].second.index, 2U);
  EXPECT_EQ(run.book().num_commits(), 3U);
  commit_of(3);
  EXPECT_EQ(run.book().num_commits(), 4U);
}

TEST_F(ComebackTest, WhatComesOutOtherwiseIsVoid) {
  for (int64_t round = 0; round < 2; ++round) commit(round);
  run.lost(1, "killed", now);
  run.lost(2, "killed", now);
  come(5, "b", b(0));
  come(6, "a", a(0));
  for (const uint64_t connection : {5, 6}) say(connection, begin_trained(1));
  say(5, prepared(1, std::byte{1}));
  const auto actions = say(6, prepared(1, std::byte{1}));
  EXPECT_EQ(sent<Refused>(actions).size(), 2U);
  EXPECT_THAT(sent<Commit>(actions), IsEmpty());
}

TEST_F(ComebackTest, WhatAllLostIsVoidWhereOneOfThemDoesNotComeBack) {
  commit(0);
  commit(1);
  run.lost(1, "killed", now);
  run.lost(2, "killed", now);
  come(5, "b", b(0));
  const auto actions = come(6, "a", {});
  EXPECT_TRUE(begins_anew(actions));
  ASSERT_EQ(sent<Start>(actions).size(), 2U);
  for (const auto& [connection, message] : sent<Start>(actions)) EXPECT_FALSE(message.returns);
}

/// One of the two is killed again while they make it: the other lacks it too.
TEST_F(ComebackTest, WhoIsKilledAgainMakesItWithTheOthers) {
  commit(0);
  commit(1);
  run.lost(1, "killed", now);
  run.lost(2, "killed", now);
  come(5, "b", b(0));
  come(6, "a", a(0));
  say(6, begin_trained(1));
  run.lost(5, "killed", now);
  EXPECT_TRUE(sent<Start>(come(7, "b", b(0))).at(0).second.returns);
  EXPECT_EQ(sent<OpenAttempt>(say(7, begin_trained(1))).size(), 2U);
  say(6, prepared(1));
  EXPECT_EQ(sent<Commit>(say(7, prepared(1))).size(), 2U);
}

/// Meanwhile somebody comes who has its result on disk: then it is told, and not decided again.
TEST_F(ComebackTest, WhatIsFoundWhileItIsMadeAgainIsTold) {
  both_make_again();
  run.lost(5, "killed", now);
  const auto actions = come(7, "c", c());
  ASSERT_EQ(sent<Start>(actions).size(), 1U);
  EXPECT_TRUE(sent<Start>(actions)[0].second.returns);
  ASSERT_EQ(sent<Commit>(actions).size(), 1U);
  EXPECT_EQ(sent<Commit>(actions)[0].first, 6U);
  EXPECT_EQ(sent<Commit>(actions)[0].second.index, 1U);
  say(6, prepared(1));
  EXPECT_EQ(run.book().num_commits(), 2U);
}

/// One of those who make it was not heard for a while: it waits for the round that it has begun.
TEST_F(ComebackTest, WhatIsFoundIsToldToWhoIsBehindToo) {
  both_make_again();
  for (int i = 0; i < 300; ++i) {
    now += std::chrono::milliseconds(200);
    say(5, Heartbeat{.header = kRun});
    run.tick(now);
  }
  say(6, Heartbeat{.header = kRun});
  ASSERT_EQ(run.status(now).islands.at(0).state, IslandState::kFetching) << "behind";
  const auto actions = come(7, "c", c());
  ASSERT_EQ(sent<Start>(actions).size(), 1U);
  std::set<uint64_t> told;
  for (const auto& [connection, commit] : sent<Commit>(actions)) told.insert(connection);
  EXPECT_THAT(told, ElementsAre(5, 6));
}

TEST_F(ComebackTest, ACoordinatorThatComesAfterTakesThemBackToo) {
  Coordinator first(waiting(), {}, now);
  keep(first.begin());
  const auto hears = [&](uint64_t connection, const Message& message) {
    keep(first.received(connection, message, now));
  };
  for (const uint64_t connection : {1, 2}) {
    first.opened(connection, now);
    hears(connection, hello(connection == 1 ? "b" : "a"));
  }
  for (const uint64_t connection : {1, 2}) hears(connection, ready());
  for (const uint64_t connection : {1, 2}) hears(connection, begin_trained(0));
  for (const uint64_t connection : {1, 2}) hears(connection, prepared(0));
  run = Coordinator(waiting(), kept, now);
  run.begin();
  EXPECT_FALSE(begins_anew(come(5, "b", b(0))));
  EXPECT_FALSE(begins_anew(come(6, "a", a(0))));
  EXPECT_EQ(run.book().members().size(), 2U);
  Begin message = begin_trained(1);
  message.header.term = 2;
  say(5, message);
  EXPECT_EQ(sent<OpenAttempt>(say(6, message)).size(), 2U);
}

}  // namespace
}  // namespace atl::swarm
