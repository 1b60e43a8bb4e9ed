#include "atoll/island/recorded_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/collective/mailbox.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::island {
namespace {

/// The others, whose commits come when the test says so.
class Others final : public collective::Averager {
 public:
  int num_members() const override { return 2; }
  void begin(collective::Contribution contribution) override {
    begun.push_back(contribution.round);
    mailbox.note_begun(contribution.round);
  }
  Result<collective::Commit> wait(int64_t round) override { return mailbox.take_commit(round); }
  std::optional<collective::Commit> take_missed() override { return mailbox.take_missed(); }
  std::optional<int64_t> take_position() override { return mailbox.take_position(); }
  collective::ExchangeStats stats() const override { return {}; }

  collective::Mailbox mailbox;
  std::vector<int64_t> begun;
};

/// It was in round 3 before it was killed, and has not come to its step again; round 4 went on
/// without it.
TEST(RecordedRoundsTest, WhatWasCommittedBehindAnOwnRoundWaitsUntilThatIsBegunAgain) {
  const TestFolder folder;
  run::Diary diary(folder.path());
  Others others;
  const EventSink events = [](const Event&) {};
  RecordedRounds rounds(others, diary, events);
  rounds.go_on(/*is_member=*/true);
  others.mailbox.committed({.round = 3, .included = true, .own_share = 0.5}, /*begun=*/false);
  others.mailbox.committed({.round = 4, .included = false}, /*begun=*/false);
  others.mailbox.reinstated(90);
  EXPECT_FALSE(rounds.take_missed());
  EXPECT_FALSE(rounds.take_position());
  rounds.begin({.round = 3, .weight = 10});
  EXPECT_THAT(others.begun, testing::IsEmpty()) << "it was told, and committed";
  const auto own = rounds.wait(3);
  ASSERT_TRUE(own);
  EXPECT_FALSE(own->left_out);
  const auto missed = rounds.take_missed();
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->round, 4);
  EXPECT_EQ(rounds.take_position(), 90);
}

}  // namespace
}  // namespace atl::island
