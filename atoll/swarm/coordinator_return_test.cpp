// Who comes back to the coordinator, or joins; and what a run is begun again with.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/swarm/rules.h"
#include "atoll/testing/coordinator_harness.h"

namespace atl::swarm {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using CoordinatorReturnTest = CoordinatorTest;

TEST_F(CoordinatorReturnTest, WhoIsBackHearsWhatItMissedAndTakesPartOnceItHasIt) {
  start_two();
  say(1, begin(0));
  say(2, begin(0));
  coordinator.lost(2, "reset", now);
  Prepared again = prepared(0, {}, {1});
  again.header.attempt = 1;
  EXPECT_EQ(sent<Commit>(say(1, again)).size(), 1U);
  coordinator.opened(5, now);
  const auto back = say(5, Resume{.header = kRun, .number = 0, .name = "a", .num_leased = 8});
  EXPECT_EQ(sent<Resumed>(back).size(), 1U);
  ASSERT_EQ(sent<Commit>(back).size(), 1U);
  EXPECT_TRUE(sent<Resumed>(back)[0].second.units.empty());
  say(1, begin(1));
  EXPECT_TRUE(sent<Reinstated>(say(5, CaughtUp{kRun, 0})).empty());
  EXPECT_EQ(sent<Reinstated>(say(5, CaughtUp{kRun, 1})).size(), 1U);
}

TEST_F(CoordinatorReturnTest, RowsThatWereNotHeardOfAreSaidAgain) {
  start_two();
  coordinator.lost(2, "reset", now);
  coordinator.opened(5, now);
  const auto back = say(5, Resume{.header = kRun, .number = 0, .name = "a", .num_leased = 6});
  ASSERT_EQ(sent<Resumed>(back).size(), 1U);
  EXPECT_THAT(sent<Resumed>(back)[0].second.units, ElementsAre(Units{12, 2, 2}));
}

TEST_F(CoordinatorReturnTest, ACoordinatorThatComesAfterGoesOnWithTheSameMembers) {
  kept.apply(TermBegan{1});
  for (const auto& [connection, name] : {std::pair(1, "b"), std::pair(2, "a")}) {
    coordinator.opened(static_cast<uint64_t>(connection), now);
    say(static_cast<uint64_t>(connection), hello(name));
  }
  keep(say(1, ready()));
  keep(say(2, ready()));
  keep(commit(0));
  EXPECT_EQ(kept, coordinator.book());

  Coordinator next(options(), kept, now);
  next.begin();
  const auto resume = [&](uint64_t connection, int32_t number, const std::string& name) {
    next.opened(connection, now);
    return next.received(connection,
                         Resume{.header = kRun,
                                .number = number,
                                .name = name,
                                .num_commits = 1,
                                .first_round = 0,
                                .num_leased = 8},
                         now);
  };
  const Header header{.run = "r1", .term = 2};
  const auto back = resume(11, 0, "a");
  ASSERT_EQ(sent<Resumed>(back).size(), 1U);
  EXPECT_EQ(sent<Resumed>(back)[0].second.header.term, 2U);
  Begin first = begin(1);
  first.header.term = 2;
  EXPECT_TRUE(sent<OpenAttempt>(next.received(11, first, now)).empty()) << "b may come back";
  resume(12, 1, "b");
  EXPECT_EQ(sent<OpenAttempt>(next.received(12, first, now)).size(), 2U);
}

TEST_F(CoordinatorReturnTest, WhoHoldsTheRunsStateBeginsItAgainThoughTheyAreFew) {
  CoordinatorOptions all_must_be_here = options();
  all_must_be_here.min_replicas = 2;
  Coordinator again(all_must_be_here, {}, now);
  again.begin();
  const auto come = [&](uint64_t connection, const std::string& name, int64_t newest) {
    again.opened(connection, now);
    again.received(connection, hello(name), now);
    Ready message = ready();
    if (newest > 0) message.checkpoints[newest] = "q";
    return again.received(connection, message, now);
  };
  come(1, "a", 0);
  const auto started = sent<Start>(come(2, "b", 5));
  ASSERT_EQ(started.size(), 1U) << "a would take b back to step 0";
  EXPECT_EQ(started[0].first, 2U);
  EXPECT_EQ(started[0].second.step, 5);
  EXPECT_EQ(sent<OpenAttempt>(again.received(2, begin(0), now)).size(), 1U);
  const auto joined = sent<Start>(again.received(2, prepared(0, {}, {1}), now));
  ASSERT_EQ(joined.size(), 1U);
  EXPECT_EQ(joined[0].first, 1U);
  EXPECT_TRUE(joined[0].second.joins);
  EXPECT_TRUE(sent<OpenAttempt>(again.received(2, begin(1), now)).empty()) << "two are needed now";
  EXPECT_THAT(sent<Alive>(again.tick(now + seconds(1))).at(0).second.waits,
              HasSubstr("1 of at least 2 islands (swarm.min_replicas)"));
}

TEST_F(CoordinatorReturnTest, TheNewestCheckpointThatAnybodyHoldsBegins) {
  const auto beginning = [&](bool takes_newcomers, const std::vector<Checkpoints>& held) {
    CoordinatorOptions all = options();
    all.replicas = std::ssize(held);
    all.takes_newcomers = takes_newcomers;
    Coordinator again(all, {}, now);
    again.begin();
    Coordinator::Actions last;
    for (uint64_t i = 0; i < held.size(); ++i) {
      again.opened(i, now);
      again.received(i, hello(fmt::format("island-{}", i)), now);
      last = again.received(i, Ready{kRun, {}, held[i]}, now);
    }
    std::string out;  // "STEP: ISLAND..."
    for (const auto& [connection, message] : sent<Start>(last)) {
      out += out.empty() ? fmt::format("{}:", message.step) : "";
      out += fmt::format(" {}", connection);
    }
    return out;
  };
  const Checkpoints both = {{20, "p"}, {40, "q"}};
  const Checkpoints lost = {{20, "p"}};
  EXPECT_EQ(beginning(true, {both, both}), "40: 0 1");
  EXPECT_EQ(beginning(true, {both, lost}), "40: 0") << "island 1 joins later";
  EXPECT_EQ(beginning(true, {lost, both, both}), "40: 1 2");
  EXPECT_EQ(beginning(true, {both, {{20, "p"}, {40, "other"}}}), "20: 0 1") << "which is right?";
  EXPECT_EQ(beginning(true, {both, {{40, "other"}}, both}), "40: 0 2");
  EXPECT_EQ(beginning(true, {{{40, "q"}}, {{40, "other"}}}), "");
  EXPECT_EQ(beginning(true, {{{60, "r"}}, both}), "60: 0");
  EXPECT_EQ(beginning(false, {both, lost}), "20: 0 1") << "nobody can join later";
  EXPECT_EQ(beginning(false, {{{60, "r"}}, both}), "");
  EXPECT_EQ(beginning(true, {{{0, "p"}}, {{0, "p"}}, {{0, "q"}}}), "") << "another first model";
}

TEST_F(CoordinatorReturnTest, ACheckpointBeyondTheRunIsOfAnother) {
  start_two();
  for (const uint64_t island : {1, 2}) say(island, begin(1));
  for (const uint64_t island : {1, 2}) keep(say(island, prepared(1)));
  coordinator.lost(1, "reset", now);
  coordinator.lost(2, "reset", now);
  Coordinator::Actions last;
  for (const uint64_t connection : {4, 5}) {
    coordinator.opened(connection, now);
    say(connection, hello(connection == 4 ? "a" : "b"));
    Ready message = ready();
    message.checkpoints = {{connection == 4 ? 1000 : 20, "q"}};
    last = say(connection, message);
  }
  const auto started = sent<Start>(last);
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(std::pair(started[0].first, started[0].second.step),
            std::pair(uint64_t{5}, int64_t{20}));
}

TEST_F(CoordinatorReturnTest, WhatOneHeldLongAgoDoesNotBeginTheRun) {
  Book book;
  book.apply(TermBegan{1});
  book.apply(RunBegan{"r1", 500, 2, {}, "text"});
  book.apply(Admitted{{0, "a", "a:1"}});
  book.apply(Admitted{{1, "b", "b:1"}});
  book.apply(Committed{.held = {.step = 1000}});
  CoordinatorOptions careful = options();
  careful.most_lost = 100;
  Coordinator next(careful, book, now);
  next.begin();
  const auto come = [&](uint64_t connection, const std::string& name, int64_t step) {
    next.opened(connection, now);
    next.received(connection, hello(name), now);
    return next.received(connection, Ready{kRun, {}, {{step, "p"}}}, now);
  };
  come(1, "b", 800);
  for (int i = 0; i < 60; ++i) {
    now += seconds(1);
    next.received(1, Heartbeat{kRun}, now);
    EXPECT_TRUE(sent<Start>(next.tick(now)).empty()) << "a has up to step 900 at least";
  }
  const auto started = sent<Start>(come(2, "a", 900));
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(std::pair(started[0].first, started[0].second.step),
            std::pair(uint64_t{2}, int64_t{900}));
}

/// Of a run that is at step 1000, its method taking no newcomers.
std::string begins_at_1000(CoordinatorOptions options, const std::vector<Checkpoints>& held,
                           Time now) {
  Book book;
  book.apply(TermBegan{1});
  book.apply(RunBegan{"r1", 500, 3, {}, "text"});
  book.apply(Committed{.held = {.step = 1000}});
  options.replicas = 3;
  options.min_replicas = 2;
  options.most_lost = 100;
  options.takes_newcomers = false;
  Coordinator next(options, book, now);
  next.begin();
  std::string out;  // "NUMBER: STEP", or why not.
  for (uint64_t i = 0; i < held.size(); ++i) {
    next.opened(i, now);
    next.received(i, Hello{.version = "0.1.0", .name = fmt::format("i{}", i), .address = "here:1"},
                  now);
    const auto last = next.received(i, Ready{kRun, {}, held[i]}, now);
    for (const auto& [to, message] : sent<Start>(last)) {
      out += fmt::format("{}: {}; ", to, message.step);
    }
    for (const auto& [to, message] : sent<Refused>(last)) {
      out += fmt::format("{}: {}; ", to, message.reason);
    }
  }
  return out;
}

TEST_F(CoordinatorReturnTest, WithoutNewcomersAsManyAsCanBegin) {
  const auto begins = [&](const std::vector<Checkpoints>& held) {
    return begins_at_1000(options(), held, now);
  };
  const Checkpoints all = {{900, "p"}, {1000, "q"}};
  EXPECT_EQ(begins({all, all, all}), "0: 1000; 1: 1000; 2: 1000; ");
  EXPECT_EQ(begins({all, all, {{900, "p"}}}), "0: 900; 1: 900; 2: 900; ") << "not too old";
  const std::string without = begins({all, all, {{800, "o"}}});
  EXPECT_THAT(without, HasSubstr("0: 1000; 1: 1000; 2: "));
  EXPECT_THAT(without, HasSubstr("goes on from step 1000, which island 'i2' does not hold"));
}

TEST_F(CoordinatorReturnTest, WhoseRoundsAreOnDiskDoNotBeginAtNothing) {
  const auto starts_at_0 = [&](bool keeps_rounds) {
    Book book;
    book.apply(TermBegan{1});
    book.apply(RunBegan{"r1", 0, 2, {}, "text"});
    book.apply(Admitted{{0, "a", "a:1"}});
    book.apply(Committed{.held = {.step = 10}});  // Before a checkpoint was due.
    CoordinatorOptions known = options();
    known.keeps_rounds = keeps_rounds;
    known.most_lost = 100;
    Coordinator next(known, book, now);
    next.begin();
    for (const uint64_t connection : {1, 2}) {
      next.opened(connection, now);
      next.received(connection, hello(connection == 1 ? "b" : "c"), now);
      next.received(connection, ready(), now);
    }
    bool started = false;
    for (int i = 0; i < 60; ++i) {
      now += seconds(1);
      for (const uint64_t connection : {1, 2}) next.received(connection, Heartbeat{kRun}, now);
      started = started || !sent<Start>(next.tick(now)).empty();
    }
    return started;
  };
  EXPECT_FALSE(starts_at_0(true)) << "a has what was committed";
  EXPECT_TRUE(starts_at_0(false));
}

TEST_F(CoordinatorReturnTest, ARunThatAllHadLeftIsBegunAgainByThoseWhoCome) {
  start_two();
  Book book = coordinator.book();
  book.apply(Left{0});
  book.apply(Left{1});
  Coordinator next(options(), book, now);
  next.begin();
  next.opened(3, now);
  const auto refused =
      sent<Refused>(next.received(3, Resume{.header = kRun, .number = 0, .name = "a"}, now));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].second.reason, HasSubstr("must join again"));
  Coordinator::Actions last;
  for (const uint64_t connection : {4, 5}) {
    next.opened(connection, now);
    next.received(connection, hello(connection == 4 ? "a" : "b"), now);
    last = next.received(connection, ready(), now);
  }
  EXPECT_EQ(sent<Start>(last).size(), 2U);
}

TEST_F(CoordinatorReturnTest, ARunIsNotOverWhenOneHasLeftAndTheOthersAreCutOff) {
  for (const int64_t steps : {20, 40}) {  // Of which 20 are committed.
    CoordinatorOptions known = options();
    known.steps = steps;
    Coordinator run(known, {}, now);
    run.begin();
    start_two(run);
    for (const uint64_t connection : {1, 2}) run.received(connection, begin(1), now);
    for (const uint64_t connection : {1, 2}) run.received(connection, prepared(1), now);
    run.received(1, Leave{kRun}, now);
    run.lost(2, "reset", now);
    EXPECT_EQ(run.finished(), steps == 20);
    if (run.finished()) continue;
    run.opened(3, now);
    const Resume resume{
        .header = kRun, .number = 0, .name = "a", .num_commits = 1, .num_leased = 8};
    EXPECT_EQ(sent<Resumed>(run.received(3, resume, now)).size(), 1U);
    run.received(3, CaughtUp{kRun, 1}, now);
    EXPECT_EQ(sent<OpenAttempt>(run.received(3, begin(2), now)).size(), 1U);
    run.received(3, Leave{kRun}, now);
    EXPECT_TRUE(run.finished()) << "nobody is left";
  }
}

TEST_F(CoordinatorReturnTest, ARunIsNotOverWhenOneHasLeftAndTheOthersAreAwayForLong) {
  CoordinatorOptions known = options();
  known.steps = 1000;
  Coordinator run(known, {}, now);
  run.begin();
  start_two(run);
  run.received(1, Leave{kRun}, now);
  run.lost(2, "reset", now);
  now += std::chrono::minutes(30);
  for (int i = 0; i < 10; ++i) run.tick(now += seconds(1));
  EXPECT_FALSE(run.finished());
  EXPECT_TRUE(run.book().members().empty() || run.book().members().size() == 1);
}

TEST_F(CoordinatorReturnTest, WhoIsOnItsWayIsWaitedFor) {
  Book book;
  book.apply(TermBegan{1});
  book.apply(RunBegan{"r1", 1000, 2, {}, "text"});
  for (const auto& [number, name] : {std::pair(0, "a"), std::pair(1, "b"), std::pair(2, "c")}) {
    book.apply(Admitted{{number, name, std::string(name) + ":1"}});
  }
  Coordinator next(options(), book, now);
  next.begin();
  const auto say_ready = [&](uint64_t connection, int64_t step) {
    return next.received(connection, Ready{kRun, {}, {{step, "p"}}}, now);
  };
  for (const auto& [connection, name] : {std::pair(1, "a"), std::pair(2, "b"), std::pair(3, "c")}) {
    next.opened(static_cast<uint64_t>(connection), now);
    next.received(static_cast<uint64_t>(connection), hello(name), now);
  }
  say_ready(2, 800);
  EXPECT_TRUE(sent<Start>(say_ready(3, 800)).empty()) << "a has said Hello";
  const auto started = sent<Start>(say_ready(1, 1000));
  ASSERT_EQ(started.size(), 1U);
  EXPECT_EQ(started[0].second.step, 1000);
}

TEST_F(CoordinatorReturnTest, OneOfAnotherRunDoesNotEndIt) {
  Book book;
  book.apply(TermBegan{1});
  book.apply(RunBegan{"r1", 1000, 2, {}, "text"});
  book.apply(Admitted{{0, "a", "a:1"}});
  book.apply(Admitted{{1, "b", "b:1"}});
  Coordinator next(options(), book, now);
  next.begin();
  next.opened(1, now);
  next.received(1, hello("b"), now);
  next.received(1, Ready{kRun, {}, {{5000, "x"}}}, now);  // Far beyond what the run has had.
  for (int i = 0; i < 60; ++i) {
    now += seconds(1);
    next.received(1, Heartbeat{kRun}, now);
    EXPECT_TRUE(sent<Start>(next.tick(now)).empty());
  }
  EXPECT_FALSE(next.finished()) << "a may come";
}

TEST_F(CoordinatorReturnTest, WhoIsNoMemberMustJoinAgain) {
  start_two();
  Header later = kRun;
  later.term = 9;
  for (const Resume& resume :
       {Resume{.header = kRun, .number = 7, .name = "a"},
        Resume{.header = kRun, .number = 1, .name = "a"},
        Resume{.header = later, .number = 0, .name = "a"},
        Resume{.header = kRun, .number = 0, .name = "a", .num_commits = 3},
        Resume{.header = kRun, .number = 0, .name = "a", .num_leased = 100}}) {
    coordinator.opened(9, now);
    EXPECT_EQ(sent<Refused>(say(9, resume)).size(), 1U);
  }
}

TEST_F(CoordinatorReturnTest, WhoComesLaterJoinsWithTheStateOfTheOthers) {
  start_two();
  commit(0);
  coordinator.opened(3, now);
  say(3, hello("c"));
  const auto actions = say(3, ready());
  const auto started = sent<Start>(actions);
  ASSERT_EQ(started.size(), 1U);
  EXPECT_TRUE(started[0].second.joins);
  EXPECT_EQ(started[0].second.number, 2);
  ASSERT_EQ(started[0].second.held.size(), 1U);
  EXPECT_EQ(started[0].second.held[0].round, 0);
  EXPECT_EQ(sent<View>(actions).size(), 3U);
  // The others do not wait for it.
  say(1, begin(1));
  EXPECT_EQ(sent<OpenAttempt>(say(2, begin(1))).size(), 2U);
  // It has it: it counts after a period.
  const auto level = sent<Reinstated>(say(3, CaughtUp{kRun, 1}));
  ASSERT_EQ(level.size(), 1U);
  EXPECT_EQ(level[0].second.first_round, 3);
}

}  // namespace
}  // namespace atl::swarm
