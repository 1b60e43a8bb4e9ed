#include "atoll/rounds/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/collective/mailbox.h"
#include "atoll/rounds/rounds.h"

namespace atl::rounds {
namespace {

/// Of two fragments, in a run of 100 steps that keeps what is published every 10.
struct Member {
  Member()
      : rounds({2, true}, {.name = "elastic", .last_step = 100, .keep_every = 10},
               {.method = "streaming_diloco", .sync_every = 4, .num_fragments = 2}, mailbox) {}

  void train() {
    step = rounds.step_after(step);
    rounds.trained(step);
  }
  std::optional<Task> next() { return rounds.next().value(); }
  void begin(int64_t round) {
    mailbox.called({.round = round, .fragment = int32_t(round % 2), .base = round - 1});
    const auto task = next();
    ASSERT_TRUE(task && std::holds_alternative<Begin>(*task));
    rounds.begun(std::get<Begin>(*task).own);
    mailbox.note_begun(round);
  }
  void commit(int64_t round, int64_t at, bool stop = false) {
    mailbox.committed({.round = round, .fragment = int32_t(round % 2), .step = at, .stop = stop},
                      false);
  }
  void take(int64_t round) {
    const auto task = next();
    ASSERT_TRUE(task && std::holds_alternative<Take>(*task));
    EXPECT_EQ(rounds.taken(mailbox.take_commit(round)).fate, Fate::kOvertaken);
    rounds.applied(round % 2, round);
  }
  void absorb(int64_t round) {
    const auto task = rounds.next_missed();
    ASSERT_TRUE(task && std::holds_alternative<Absorb>(*task));
    rounds.absorbed(std::get<Absorb>(*task).commit);
    rounds.applied(round % 2, round);
  }

  collective::Mailbox mailbox;
  Rounds rounds;
  int64_t step = 0;
};

TEST(ElasticTest, ARoundIsBegunWhenItIsCalledAndTakenOnceItIsDecided) {
  Member one;
  one.train();
  EXPECT_FALSE(one.next());
  one.begin(0);
  EXPECT_FALSE(one.next()) << "training goes on";
  one.train();
  one.commit(0, 4);
  one.take(0);
  EXPECT_EQ(one.rounds.standing().steps_since(0), 1) << "since it was sent";
  EXPECT_EQ(one.rounds.standing().steps_since(1), 2);
}

TEST(ElasticTest, WhatWasMissedComesBeforeARoundIsBegun) {
  Member one;
  one.train();
  one.commit(0, 4);
  one.mailbox.called({.round = 1, .fragment = 1, .base = 0});
  EXPECT_FALSE(one.next()) << "round 0 is not here";
  one.absorb(0);
  const auto task = one.next();
  ASSERT_TRUE(task && std::holds_alternative<Begin>(*task));
  EXPECT_EQ(std::get<Begin>(*task).own.number, 1);
}

/// A newcomer's fragments are of different rounds.
TEST(ElasticTest, WhatAnotherFragmentMissedComesBeforeARoundIsBegunToo) {
  Member one;
  one.rounds.applied(0, 2);  // Fetched.
  one.rounds.joined(8, -1);
  one.train();
  one.commit(1, 6);
  one.mailbox.called({.round = 3, .fragment = 1, .base = 2});
  EXPECT_FALSE(one.next()) << "its values would rest on a state without round 1";
  one.absorb(1);
  EXPECT_TRUE(one.next());
}

TEST(ElasticTest, ThereIsARestWhereWhatIsPublishedIsToBeKept) {
  Member one;
  one.train();
  one.commit(0, 9);
  one.commit(1, 11);
  one.commit(2, 14);
  one.absorb(0);
  one.absorb(1);
  EXPECT_FALSE(one.rounds.next_missed());
  EXPECT_TRUE(one.rounds.pace().is_kept(one.step, /*has_synced=*/true));
  EXPECT_EQ(one.rounds.pace().published_step(one.step), 11);
  EXPECT_TRUE(one.rounds.caught_up(one.step).rests);
  one.absorb(2);
  EXPECT_FALSE(one.rounds.caught_up(one.step).rests);
}

TEST(ElasticTest, NothingIsBehindAStop) {
  Member one;
  one.train();
  one.commit(0, 4, /*stop=*/true);
  one.commit(1, 5);
  one.absorb(0);
  EXPECT_TRUE(one.rounds.standing().stops());
  EXPECT_FALSE(one.rounds.next_missed());
  one.mailbox.called({.round = 2, .fragment = 0, .base = 1});
  EXPECT_FALSE(one.next());
}

TEST(ElasticTest, WhoIsToLeaveBeginsNoMoreOnceEachFragmentHasItsPart) {
  Member one;
  const auto take_part = [&](int64_t round, bool included) {
    one.train();
    one.begin(round);
    one.mailbox.committed({.round = round,
                           .fragment = int32_t(round % 2),
                           .step = 2 * round + 2,
                           .included = included},
                          true);
    EXPECT_FALSE(one.rounds.may_leave(one.step, /*lands=*/true));
    ASSERT_TRUE(one.next());
    one.rounds.taken(one.mailbox.take_commit(round));
    one.rounds.applied(round % 2, round);
  };
  take_part(0, true);
  one.rounds.leave_soon();
  take_part(1, true);
  take_part(2, false);
  take_part(3, true);
  EXPECT_FALSE(one.rounds.may_leave(one.step, /*lands=*/true)) << "fragment 0 went on without it";
  take_part(4, true);
  EXPECT_TRUE(one.rounds.may_leave(one.step, /*lands=*/true));
  one.mailbox.called({.round = 5, .fragment = 1, .base = 4});
  EXPECT_FALSE(one.next());
}

TEST(ElasticTest, ARoundOfAFragmentThatIsNoneIsRefused) {
  Member one;
  one.train();
  one.mailbox.called({.round = 0, .fragment = 7});
  EXPECT_FALSE(one.rounds.next());
}

}  // namespace
}  // namespace atl::rounds
