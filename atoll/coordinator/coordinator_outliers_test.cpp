// Contributions that do not count, though they were made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "atoll/testing/coordinator_harness.h"

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CoordinatorOutliersTest : public CoordinatorTest {
 protected:
  /// Rounds of islands a (connection 2, rank 0) and b (1, rank 1), each of norm 1.
  void usual_rounds(int count) {
    for (int i = 0; i < count; ++i) {
      begin_both();
      ASSERT_THAT(sent<Commit>(prepare_both(0.25)), testing::SizeIs(2));
      next += 1;
    }
  }
  void begin_both() {
    for (const uint64_t island : {1, 2}) opened = sent<OpenAttempt>(say(island, begin(next)));
  }
  /// Each owns a part of the values; b's is so large in each of them.
  Coordinator::Actions prepare_both(double b, int32_t attempt = 0) {
    say(2, of_attempt(prepared(next, {}, {0.75, b}), attempt));
    return say(1, of_attempt(prepared(next, {}, {0.25, 3 * b}), attempt));
  }
  template <typename Said>
  Said of_attempt(Said message, int32_t attempt) {
    message.header.attempt = attempt;
    return message;
  }
  Unusable unusable(int32_t contributor, int32_t attempt = 0) {
    return {.header = {.run = "r1", .term = 1, .round = next, .attempt = attempt},
            .contributor = contributor,
            .reason = "value 3 is nan"};
  }
  static std::string log_of(const Coordinator::Actions& actions) {
    std::string log;
    for (const Event& event : told(actions)) log += event.sentence + "\n";
    return log;
  }

  int64_t next = 0;  // Round.
  std::vector<std::pair<uint64_t, OpenAttempt>> opened;
};

TEST_F(CoordinatorOutliersTest, AnOutlierAbstainsFromAnotherAttempt) {
  start_two();
  usual_rounds(5);
  begin_both();
  const auto judged = prepare_both(1e4);
  EXPECT_THAT(log_of(judged), HasSubstr("island 'b' is left out of round 5: its norm is 2e+02, "
                                        "200 times the usual"));
  EXPECT_THAT(sent<Commit>(judged), IsEmpty());
  opened = sent<OpenAttempt>(judged);
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_EQ(opened[0].second.header.attempt, 1);
  EXPECT_THAT(opened[0].second.members, ElementsAre(0, 1));
  EXPECT_THAT(opened[0].second.weights, ElementsAre(10, 0));
  const auto commits = sent<Commit>(prepare_both(0, 1));
  ASSERT_EQ(commits.size(), 2U);
  EXPECT_THAT(commits[0].second.members, ElementsAre(0, 1));
  EXPECT_THAT(commits[0].second.weights, ElementsAre(10, 0));
  EXPECT_EQ(coordinator.status(now).islands[1].left_out, 1);
  next += 1;
  usual_rounds(1);
}

/// Its outer step may have made other bits elsewhere: NaN has many.
TEST_F(CoordinatorOutliersTest, DigestsOfAnAttemptWithAnOutlierDoNotMatter) {
  start_two();
  usual_rounds(5);
  begin_both();
  say(2, prepared(next, {}, {0.75, 1e4}));
  const auto judged = say(1, prepared(next, std::byte{1}, {0.25, 3e4}));
  EXPECT_THAT(sent<RunEnded>(judged), IsEmpty());
  EXPECT_EQ(sent<OpenAttempt>(judged).size(), 2U);
}

/// Rows are consumed by the next commit that counts this member.
TEST_F(CoordinatorOutliersTest, WhatIsLeftOutConsumesNoRows) {
  start_two();
  usual_rounds(5);
  for (const uint64_t island : {1, 2}) {
    Begin message = begin(next);
    message.num_trained = 2;
    say(island, message);
  }
  prepare_both(1e4);
  prepare_both(0, 1);
  EXPECT_EQ(coordinator.book().leases().members().at(0).num_consumed, 2);
  EXPECT_EQ(coordinator.book().leases().members().at(1).num_consumed, 0);
}

TEST_F(CoordinatorOutliersTest, WhatCannotBeUsedIsLeftOutAtOnce) {
  start_two();
  begin_both();
  say(1, prepared(next, {}, {1, 1}));
  const auto judged = say(2, unusable(1));
  EXPECT_THAT(log_of(judged), HasSubstr("island 'b' is left out of round 0: 'a' cannot use its "
                                        "values: value 3 is nan"));
  opened = sent<OpenAttempt>(judged);
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_THAT(opened[0].second.weights, ElementsAre(10, 0));
  EXPECT_TRUE(sent<OpenAttempt>(say(2, unusable(1))).empty()) << "of an attempt that is over";
  EXPECT_EQ(sent<Commit>(prepare_both(0, 1)).size(), 2U);
}

TEST_F(CoordinatorOutliersTest, WhoIsLeftOutStaysSoThoughItHasNotHeard) {
  start_two();
  begin_both();
  say(2, unusable(1));
  coordinator.lost(1, "reset", now);
  coordinator.opened(5, now);
  say(5, Resume{.header = kRun, .number = 1, .name = "b", .first_round = 0, .num_leased = 8});
  say(5, CaughtUp{kRun, 0});
  say(5, begin(next));  // With the weight that it had.
  const auto again = sent<OpenAttempt>(coordinator.lost(2, "reset", now));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_THAT(again[0].second.members, ElementsAre(1));
  EXPECT_THAT(again[0].second.weights, ElementsAre(0));
}

/// A coordinator that comes back judges by what it knew.
TEST_F(CoordinatorOutliersTest, NormsOutliveTheirCoordinator) {
  start_two();
  usual_rounds(5);
  Coordinator again(options(), read_book(std::vector<Bytes>{coordinator.book().contents()}), now);
  again.begin();
  for (const uint64_t island : {1, 2}) {
    again.opened(island, now);
    again.received(island,
                   Resume{.header = kRun,
                          .number = island == 1 ? 1 : 0,
                          .name = island == 1 ? "b" : "a",
                          .num_commits = 5,
                          .first_round = 0,
                          .num_leased = 8},
                   now);
    Begin message = begin(next);
    message.header.term = 2;
    again.received(island, message, now);
  }
  Prepared message = prepared(next, {}, {0.75, 1e4});
  message.header.term = 2;
  again.received(2, message, now);
  message.measures.squares = {0.25, 3e4};
  EXPECT_THAT(
      log_of(again.received(1, message, now)),
      HasSubstr("island 'b' is left out of round 5: its norm is 2e+02, 200 times the usual"));
}

/// Islands a (connection 1) to e (5), which have begun round 0.
class FiveIslandsTest : public CoordinatorOutliersTest {
 protected:
  FiveIslandsTest() : run(of_five(), {}, now) { begin_five(run); }
  void begin_five(Coordinator& five) {
    five.begin();
    for (uint64_t island = 1; island <= 5; ++island) {
      five.opened(island, now);
      five.received(island, hello(std::string(1, static_cast<char>('a' + island - 1))), now);
      five.received(island, ready(), now);
    }
    for (uint64_t island = 1; island <= 5; ++island) five.received(island, begin(0), now);
  }
  static CoordinatorOptions of_five() {
    auto five = options();
    five.replicas = 5;
    return five;
  }
  /// Of the first attempt, told by the last to prepare it.
  Coordinator::Actions prepare(std::vector<double> squares, std::vector<double> products) {
    Coordinator::Actions last;
    for (uint64_t island = 1; island <= 5; ++island) {
      Prepared message = prepared(0, {}, std::vector<double>(5));
      message.measures.products.resize(15);
      if (island == 3) message.measures = {squares, products};  // It owns all of it.
      last = run.received(island, message, now);
    }
    return last;
  }

  Coordinator run;
};

TEST_F(FiveIslandsTest, TheFirstRoundHasOutliersToo) {
  const auto actions = prepare({1, 1, 1, 1, 1e4}, std::vector<double>(15));
  const auto events = told(actions);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0], Event(IslandLeftOut{.island = "e",
                                           .round = 0,
                                           .offence = "norm",
                                           .figure = 100,
                                           .usual = 1,
                                           .reason = "its norm is 1e+02, 100 times the usual"}));
  const auto attempts = sent<OpenAttempt>(actions);
  ASSERT_EQ(attempts.size(), 5U);
  EXPECT_THAT(attempts[0].second.weights, ElementsAre(10, 10, 10, 10, 0));
}

TEST_F(FiveIslandsTest, AFlippedSignStandsOut) {
  const std::vector<double> products = {1, 1, 1, 1, 1, 1, -1, -1, -1, 1, 1, 1, 1, -1, 1};
  const auto actions = prepare({1, 1, 1, 1, 1}, products);
  const auto events = told(actions);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0],
            Event(IslandLeftOut{
                .island = "d",
                .round = 0,
                .offence = "direction",
                .figure = -1,
                .usual = 1,
                .reason = "its cosine to the mean of the others is -1.00, where 1.00 is usual"}));
  EXPECT_THAT(sent<OpenAttempt>(actions).at(0).second.weights, ElementsAre(10, 10, 10, 0, 10));
}

TEST_F(FiveIslandsTest, DirectionsOfFewStepsAreNotCompared) {
  auto few_steps = of_five();
  few_steps.compares_directions = false;
  run = Coordinator(few_steps, {}, now);
  begin_five(run);
  const std::vector<double> products = {1, 1, 1, 1, 1, 1, -1, -1, -1, 1, 1, 1, 1, -1, 1};
  EXPECT_EQ(sent<Commit>(prepare({1, 1, 1, 1, 1}, products)).size(), 5U);
}

TEST_F(FiveIslandsTest, ReportsWithoutTheirProductsBreakTheProtocol) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& products :
       {std::vector<double>(), std::vector<double>(14), std::vector<double>(15, NAN),
        std::vector<double>(15, -infinity)}) {
    Coordinator five(of_five(), {}, now);
    begin_five(five);
    Prepared message = prepared(0, {}, std::vector<double>(5));
    message.measures.products = products;
    EXPECT_THAT(log_of(five.received(5, message, now)), HasSubstr("island 'e' broke the protocol"));
  }
}

TEST_F(CoordinatorOutliersTest, ImpossibleReportsBreakTheProtocol) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& squares : std::vector<std::vector<double>>{
           {1}, {1, 1, 1}, {1, -1}, {NAN, 1}, {1, infinity}, {1, 1e101}}) {
    Coordinator run(options(), {}, now);
    run.begin();
    start_two(run);
    for (const uint64_t island : {1, 2}) run.received(island, begin(0), now);
    const auto actions = run.received(2, prepared(0, {}, squares), now);
    EXPECT_THAT(log_of(actions), HasSubstr("island 'a' broke the protocol: it prepared round 0"));
    EXPECT_TRUE(closes(actions, 2));
  }
}

TEST_F(CoordinatorOutliersTest, NobodyCallsItsOwnValuesUnusable) {
  start_two();
  begin_both();
  EXPECT_THAT(log_of(say(1, unusable(1))), HasSubstr("'b' broke the protocol"));
}

/// What it owned is not known then.
TEST_F(CoordinatorOutliersTest, AnAttemptThatStandsWithoutAReportIsJudgedByTheOthers) {
  start_two();
  usual_rounds(5);
  begin_both();
  say(1, prepared(next, {}, {0.25, 0.75}));
  EXPECT_EQ(sent<Commit>(coordinator.lost(2, "reset", now)).size(), 1U);
}

}  // namespace
}  // namespace atl::swarm
