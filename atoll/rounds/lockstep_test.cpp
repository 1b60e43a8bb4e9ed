#include "atoll/rounds/lockstep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/collective/mailbox.h"
#include "atoll/method/method.h"
#include "atoll/rounds/rounds.h"

namespace atl::rounds {
namespace {

using testing::ElementsAre;

method::SyncOptions streaming(int64_t delay) {
  return {.method = "streaming_diloco",
          .sync_every = 4,
          .num_fragments = 2,
          .fragment_sync_delay = delay};
}

/// A member whose rounds are committed when the test says so.
struct Member {
  explicit Member(const method::SyncOptions& options, int64_t last_step = 12)
      : rounds({method::num_fragments(options), method::method_of(options).takes_newcomers},
               {.last_step = last_step}, options, mailbox) {}

  /// Takes a step, and does what is to be done up to the first Take that is not decided.
  void train() {
    step = rounds.step_after(step);
    rounds.trained(step);
    go_on();
  }
  void go_on() {
    while (const auto task = rounds.next().value()) {
      if (!perform(*task)) return;
    }
  }
  void catch_up() {
    while (const auto task = rounds.next_missed()) ASSERT_TRUE(perform(*task));
    step = rounds.caught_up(step).step;
  }
  bool perform(const Task& task) {
    if (const auto* due = std::get_if<Begin>(&task)) {
      rounds.begun(due->own);
      mailbox.note_begun(due->own.round);
      did.push_back("begin " + std::to_string(due->own.round));
    } else if (const auto* own = std::get_if<Take>(&task)) {
      if (!mailbox.is_decided(own->round)) return false;
      const collective::Commit commit = mailbox.take_commit(own->round);
      fates.push_back(rounds.taken(commit).fate);
      rounds.applied(commit.fragment, commit.round);
      did.push_back("take " + std::to_string(own->round));
    } else {
      const collective::Commit& commit = std::get<Absorb>(task).commit;
      rounds.absorbed(commit);
      rounds.applied(commit.fragment, commit.round);
      did.push_back("absorb " + std::to_string(commit.round));
    }
    return true;
  }
  /// At its own step, with this member's part or without.
  void commit(int64_t round, bool included = true) {
    const auto open = rounds.standing().open().find(round);
    const bool is_begun = open != rounds.standing().open().end();
    mailbox.committed({.round = round,
                       .fragment = static_cast<int32_t>(round % 2),
                       .step = 4 + 2 * round,
                       .included = included,
                       .missed = !included},
                      is_begun);
  }
  std::vector<std::string> done() { return std::exchange(did, {}); }

  collective::Mailbox mailbox;
  Rounds rounds;
  int64_t step = 0;
  std::vector<std::string> did;
  std::vector<Fate> fates;
};

TEST(LockstepTest, AFragmentIsTakenItsDelayAfterItWasSentAndAllIsAtTheEnd) {
  Member one(streaming(/*delay=*/3));
  for (int i = 0; i < 6; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 0", "begin 1")) << "after steps 4 and 6";
  one.commit(0);
  one.go_on();
  EXPECT_THAT(one.done(), ElementsAre()) << "it is due at step 7";
  one.train();
  EXPECT_THAT(one.done(), ElementsAre("take 0"));
  EXPECT_EQ(one.rounds.standing().steps_since(0), 3);
  for (int i = 0; i < 2; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 2")) << "round 1 is waited for";
  one.commit(1);
  one.go_on();
  EXPECT_THAT(one.done(), ElementsAre("take 1"));
  for (int round = 2; round < 4; ++round) one.commit(round);
  for (int i = 0; i < 3; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 3", "take 2", "take 3", "begin 4", "begin 5"));
  for (int round = 4; round < 6; ++round) one.commit(round);
  one.go_on();
  EXPECT_THAT(one.done(), ElementsAre("take 4", "take 5"));
  EXPECT_TRUE(one.rounds.pace().syncs_after(one.step, /*lands=*/true));
}

/// While it stood still the others went on without it: what it had begun comes first.
TEST(LockstepTest, WhatWasMissedRestsOnTheOwnRoundOfItsFragment) {
  Member one(streaming(/*delay=*/3));
  for (int i = 0; i < 5; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 0"));
  for (int round = 0; round < 3; ++round) one.commit(round, /*included=*/false);
  one.catch_up();
  EXPECT_THAT(one.done(), ElementsAre("absorb 1", "take 0", "absorb 2"));
  EXPECT_THAT(one.fates, ElementsAre(Fate::kLate));
  EXPECT_EQ(one.step, 8) << "where round 2 was sent";
  EXPECT_THAT(one.rounds.standing().applied(), ElementsAre(2, 1));
  one.train();
  one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 3"));
  EXPECT_EQ(one.rounds.standing().open().at(3).num_steps, 7) << "all that it trained itself";
}

TEST(LockstepTest, WhatWasOnItsWayAtACheckpointIsSentAgain) {
  Member before(streaming(/*delay=*/3));
  for (int i = 0; i < 6; ++i) before.train();
  Member after(streaming(/*delay=*/3));
  const auto again = after.rounds.resumed(6);
  ASSERT_EQ(again.size(), 2U);
  for (const OwnRound& own : again) {
    const OwnRound& first = before.rounds.standing().open().at(own.round);
    EXPECT_EQ(own.step, first.step);
    EXPECT_EQ(own.number, first.number);
    EXPECT_EQ(own.num_steps, first.num_steps);
  }
  for (int fragment = 0; fragment < 2; ++fragment) {
    EXPECT_EQ(after.rounds.standing().steps_since(fragment),
              before.rounds.standing().steps_since(fragment));
  }
}

/// Commits of different fragments come in any order.
TEST(LockstepTest, TheOwnRoundThatIsTakenFirstNeedNotBeTheOldest) {
  Member one(streaming(/*delay=*/3));
  for (int i = 0; i < 6; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 0", "begin 1"));
  for (const int round : {1, 0, 3, 2}) one.commit(round, /*included=*/false);
  one.catch_up();
  EXPECT_THAT(one.done(), ElementsAre("take 1", "absorb 3", "take 0", "absorb 2"));
}

/// What it has begun by then it still takes, at once: others may count on it to hold that.
TEST(LockstepTest, WhoIsToLeaveBeginsNoMoreOnceEachFragmentHasItsPart) {
  Member one(streaming(/*delay=*/3), /*last_step=*/40);
  const auto may_leave = [&] { return one.rounds.may_leave(one.step, /*lands=*/true); };
  for (int i = 0; i < 5; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 0"));
  one.rounds.leave_soon();
  one.commit(0);
  for (int i = 0; i < 3; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("begin 1", "take 0", "begin 2"));
  one.commit(1);
  one.commit(2);
  for (int i = 0; i < 2; ++i) one.train();
  EXPECT_THAT(one.done(), ElementsAre("take 1", "begin 3"));
  EXPECT_FALSE(may_leave()) << "of fragment 0 only what it had begun before is taken";
  one.train();
  EXPECT_THAT(one.done(), ElementsAre("take 2"));
  EXPECT_FALSE(may_leave()) << "round 3 is on its way";
  one.commit(3);
  one.go_on();
  EXPECT_THAT(one.done(), ElementsAre("take 3"));
  EXPECT_TRUE(may_leave());
  one.train();
  EXPECT_THAT(one.done(), ElementsAre()) << "the others send fragment 0";
}

TEST(LockstepTest, WhoseStateNobodyElseCanTakeOnLeavesWhereAllAreEqual) {
  Member one({.method = "delayed_diloco", .sync_every = 4});
  one.rounds.leave_soon();
  for (int round = 0; round < 3; ++round) {
    one.mailbox.committed({.round = round}, false);
    for (int i = 0; i < 4; ++i) {
      EXPECT_FALSE(one.rounds.may_leave(one.step, /*lands=*/true)) << one.step;
      one.train();
    }
  }
  EXPECT_THAT(one.done(),
              ElementsAre("begin 0", "take 0", "begin 1", "take 1", "begin 2", "take 2"));
  EXPECT_TRUE(one.rounds.may_leave(one.step, /*lands=*/true));
}

}  // namespace
}  // namespace atl::rounds
