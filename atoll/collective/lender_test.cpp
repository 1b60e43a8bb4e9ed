#include "atoll/collective/lender.h"

#include <gtest/gtest.h>

namespace atl::collective {
namespace {

using std::chrono::seconds;
using swarm::Fetch;
using swarm::PartKind;

std::shared_ptr<const Bytes> state(size_t size) { return std::make_shared<const Bytes>(size); }

Fetch of_state(int64_t round, uint64_t begin, uint64_t end, int32_t fragment = 0) {
  return {.header = {.round = round}, .fragment = fragment, .begin = begin, .end = end};
}
Fetch of_result(int64_t round) { return {.header = {.round = round}, .kind = PartKind::kResult}; }

/// States have 100 bytes, and there are some of rounds below 5.
class LenderTest : public testing::Test {
 protected:
  LenderTest() {
    lender_.provide([](int32_t, int64_t round) { return round < 5 ? state(100) : nullptr; });
  }
  void keep(int64_t round, size_t size) {
    auto committed = std::make_shared<CommittedRound>(CommittedRound{.round = round});
    const auto memory = state(size);
    committed->result.segments = {{{kMeanKey, SharedBytes{memory, *memory}}}};
    lender_.keep(committed);
  }
  bool holds_result(int64_t round) {
    return lender_.ask(1, of_result(round), now_)->blob != nullptr;
  }
  /// Makes the copy that is wanted.
  std::vector<Lender::Answer> copy() { return lender_.copied(lender_.take_job()(), now_); }

  Time now_{seconds(1)};
  Lender lender_{/*result_bytes=*/1000};
};

TEST_F(LenderTest, ResultsAreGivenWholeWhateverRangeIsAsked) {
  keep(3, 50);
  const auto answer = lender_.ask(7, of_result(3), now_);
  ASSERT_TRUE(answer && answer->blob != nullptr);
  EXPECT_EQ(answer->to, 7);
  EXPECT_EQ(answer->fetch.begin, 0U);
  EXPECT_EQ(answer->fetch.end, answer->blob->size());
  const Bytes encoded = *answer->blob;
  EXPECT_EQ(decode_result(encoded).size_bytes(), 50U);
  EXPECT_FALSE(holds_result(4));
  EXPECT_FALSE(lender_.take_job()) << "no copy of a state is wanted";
}

TEST_F(LenderTest, OldResultsMakeRoomButForTheLastTwo) {
  for (int64_t round = 0; round < 4; ++round) keep(round, 400);
  EXPECT_FALSE(holds_result(1));
  EXPECT_TRUE(holds_result(2));
  keep(4, 5000);
  EXPECT_FALSE(holds_result(2));
  EXPECT_TRUE(holds_result(3)) << "too large, but the last two stay";
  keep(5, 5000);
  EXPECT_FALSE(holds_result(3));
  EXPECT_TRUE(holds_result(4));
}

/// Who fetches it will want the results behind it.
TEST_F(LenderTest, BesideAStateThatIsLentMoreResultsStay) {
  lender_.provide([](int32_t, int64_t) { return state(10'000); });
  EXPECT_FALSE(lender_.ask(1, of_state(0, 0, 10), now_));
  copy();
  for (int64_t round = 1; round < 8; ++round) keep(round, 1000);
  EXPECT_TRUE(holds_result(1));
  lender_.tick(now_ + Lender::kPatience + seconds(1));
  keep(8, 1000);
  EXPECT_FALSE(holds_result(6));
}

TEST_F(LenderTest, StatesAreCopiedOnceForAllWhoAsk) {
  EXPECT_FALSE(lender_.ask(1, of_state(0, 0, 50), now_));
  CopyJob job = lender_.take_job();
  ASSERT_TRUE(job);
  EXPECT_FALSE(lender_.ask(2, of_state(0, 50, 100), now_));
  EXPECT_FALSE(lender_.ask(2, of_state(1, 0, 50), now_));
  EXPECT_FALSE(lender_.ask(2, of_state(9, 0, 50), now_));
  EXPECT_FALSE(lender_.take_job()) << "one is out";
  auto answers = lender_.copied(job(), now_);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].to, 1);
  EXPECT_EQ(answers[1].to, 2);
  EXPECT_EQ(answers[1].fetch.begin, 50U);
  EXPECT_NE(lender_.ask(3, of_state(0, 0, 1), now_)->blob, nullptr) << "at once, from the copy";
  EXPECT_EQ(copy().size(), 1U) << "of round 1";
  answers = copy();
  ASSERT_EQ(answers.size(), 1U) << "of round 9";
  EXPECT_EQ(answers[0].blob, nullptr);
  EXPECT_FALSE(lender_.take_job());
}

TEST_F(LenderTest, RangesThatAreNoneAreNotHere) {
  EXPECT_FALSE(lender_.ask(1, of_state(0, 0, 100), now_));
  EXPECT_NE(copy().at(0).blob, nullptr);
  EXPECT_EQ(lender_.ask(1, of_state(0, 0, 101), now_)->blob, nullptr);
  EXPECT_EQ(lender_.ask(1, of_state(0, 7, 7), now_)->blob, nullptr);
}

TEST_F(LenderTest, WithoutAProviderStatesAreNotHere) {
  Lender other(0);
  EXPECT_EQ(other.ask(1, of_state(0, 0, 10), now_)->blob, nullptr);
  EXPECT_FALSE(other.take_job());
}

TEST_F(LenderTest, WhoIsForgottenIsNotAnswered) {
  EXPECT_FALSE(lender_.ask(1, of_state(0, 0, 10), now_));
  EXPECT_FALSE(lender_.ask(2, of_state(0, 0, 10), now_));
  lender_.forget(1);
  const auto answers = copy();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].to, 2);
}

TEST_F(LenderTest, RequestsThatWaitAreBounded) {
  for (size_t i = 0; i < Lender::kMaxUnanswered; ++i) {
    EXPECT_FALSE(lender_.ask(1, of_state(0, 0, 10), now_));
  }
  EXPECT_EQ(lender_.ask(1, of_state(0, 0, 10), now_)->blob, nullptr);
  EXPECT_EQ(copy().size(), Lender::kMaxUnanswered);
}

/// All of a newcomer's pieces are to be of one state; this member goes on meanwhile.
TEST_F(LenderTest, AStateStaysWhileItIsLentAndAMinuteLonger) {
  EXPECT_FALSE(lender_.ask(1, of_state(0, 0, 10), now_));
  copy();
  lender_.provide([](int32_t, int64_t) { return nullptr; });
  for (int i = 0; i < 5; ++i) {
    lender_.lent(now_ += seconds(50));
    lender_.tick(now_);
  }
  lender_.tick(now_ += seconds(60));
  EXPECT_NE(lender_.ask(1, of_state(0, 10, 20), now_)->blob, nullptr);
  lender_.tick(now_ += seconds(61));
  EXPECT_FALSE(lender_.ask(1, of_state(0, 20, 30), now_));
  EXPECT_EQ(copy().at(0).blob, nullptr);
}

}  // namespace
}  // namespace atl::collective
