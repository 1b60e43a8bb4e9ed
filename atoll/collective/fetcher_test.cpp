#include "atoll/collective/fetcher.h"

#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::collective {
namespace {

using std::chrono::seconds;
using swarm::Fetch;
using swarm::PartKind;
using Rounds = std::vector<int64_t>;

/// Members 1 and 2 may be asked; the test answers for them.
class FetcherTest : public testing::Test {
 protected:
  struct Asked {
    int32_t number = 0;
    Fetch fetch;
  };

  static swarm::Commit commit(int64_t round, int32_t fragment = 0) {
    return {.index = static_cast<uint64_t>(round),
            .held = {.fragment = fragment, .round = round, .step = round + 1},
            .count = 10,
            .segment_values = 4096,
            .members = {1},
            .weights = {1}};
  }
  void join() {
    swarm::Start start;
    start.joins = true;
    start.held = {{.fragment = 0, .round = 4, .step = 5}};
    fetcher_.start(start);
    EXPECT_TRUE(fetcher_.fetch_state(0, 100));
  }
  Result<void> ask() {
    return fetcher_.ask(
        donors_,
        [&](int32_t number, const Fetch& fetch) {
          if (!is_up_) return false;
          asked_.push_back({number, fetch});
          return true;
        },
        now_);
  }
  Rounds rounds_asked(PartKind kind) const {
    Rounds rounds;
    for (const Asked& asked : asked_) {
      if (asked.fetch.kind == kind) rounds.push_back(asked.fetch.header.round);
    }
    return rounds;
  }
  Result<Fetcher::Arrival> receive(PartKind kind, int64_t round, const Bytes& data,
                                   int32_t number = 1) {
    return fetcher_.receive(
        number, {.header = {.round = round}, .kind = kind, .sender = number, .total = data.size()},
        data, now_);
  }
  Result<Fetcher::Arrival> receive_result(int64_t round, int32_t number = 1) {
    return receive(PartKind::kResult, round, encode(RoundResult{}), number);
  }

  Time now_{seconds(1)};
  std::vector<Fetcher::Donor> donors_ = {{.number = 1, .is_open = true},
                                         {.number = 2, .is_open = true}};
  bool is_up_ = true;
  std::vector<Asked> asked_;
  Fetcher fetcher_;
};

TEST_F(FetcherTest, ResultsComeInTheOrderOfTheCommits) {
  fetcher_.miss(commit(0), now_);
  fetcher_.miss(commit(1), now_);
  ASSERT_TRUE(ask());
  EXPECT_EQ(rounds_asked(PartKind::kResult), (Rounds{0, 1}));
  EXPECT_TRUE(std::holds_alternative<Fetcher::Record>(*receive_result(1)));
  EXPECT_EQ(fetcher_.next(), nullptr) << "round 0 comes first";
  EXPECT_FALSE(fetcher_.has_passed(0, 1));
  receive_result(0).value();
  EXPECT_EQ(fetcher_.take_next().commit.held.round, 0);
  EXPECT_FALSE(fetcher_.has_caught_up());
  EXPECT_EQ(fetcher_.take_next().commit.held.round, 1);
  EXPECT_TRUE(fetcher_.has_caught_up());
  EXPECT_TRUE(fetcher_.has_passed(0, 1));
}

TEST_F(FetcherTest, WhatHasNoResultIsNotAskedFor) {
  swarm::Commit nobody = commit(0);
  nobody.weights = {0};
  fetcher_.miss(nobody, now_);
  fetcher_.pass_over(commit(1));
  ASSERT_TRUE(ask());
  EXPECT_TRUE(asked_.empty());
  for (const int64_t round : {0, 1}) {
    const Fetcher::Missing missing = fetcher_.take_next();
    EXPECT_EQ(missing.record->round, round);
    EXPECT_TRUE(missing.record->result.segments.empty());
  }
}

TEST_F(FetcherTest, ANewcomerAsksForNoResultBeforeItsStateIsHere) {
  swarm::Start start;
  start.joins = true;
  start.held = {{.fragment = 0, .round = 4, .step = 5}};
  fetcher_.start(start);
  fetcher_.miss(commit(5), now_);
  ASSERT_TRUE(ask());
  EXPECT_TRUE(asked_.empty());
}

TEST_F(FetcherTest, KnowsWhatIsCommittedAndWhatIsBehind) {
  EXPECT_FALSE(fetcher_.is_committed(0, 3));
  fetcher_.committed({.fragment = 0, .round = 3});
  EXPECT_TRUE(fetcher_.is_committed(0, 3));
  EXPECT_TRUE(fetcher_.has_passed(0, 2));
  EXPECT_FALSE(fetcher_.is_committed(0, 4));
  EXPECT_FALSE(fetcher_.is_committed(1, 3));
  fetcher_.miss(commit(4), now_);
  EXPECT_TRUE(fetcher_.is_committed(0, 4));
  EXPECT_FALSE(fetcher_.has_passed(0, 4));
}

/// Rounds may be faster than its line: their results would keep the state from ever coming.
TEST_F(FetcherTest, StatesComeBeforeResultsAndMakeThemNeedless) {
  join();
  for (int64_t round = 5; round < 8; ++round) fetcher_.miss(commit(round), now_);
  ASSERT_TRUE(ask());
  EXPECT_EQ(rounds_asked(PartKind::kState), Rounds{4});
  EXPECT_TRUE(rounds_asked(PartKind::kResult).empty());
  // Who held it has gone on.
  for (const int32_t number : {1, 2}) fetcher_.refused(number, {.header = {.round = 4}});
  ASSERT_TRUE(ask());
  EXPECT_EQ(rounds_asked(PartKind::kState), (Rounds{4, 7}));
  fetcher_.miss(commit(8), now_);
  const auto arrival = receive(PartKind::kState, 7, Bytes(100));
  const auto& state = std::get<Fetcher::State>(arrival.value()).state;
  EXPECT_EQ(state.round, 7);
  EXPECT_EQ(state.step, 8);
  EXPECT_EQ(state.bytes.size(), 100U);
  ASSERT_TRUE(ask());
  EXPECT_EQ(rounds_asked(PartKind::kResult), Rounds{8}) << "the state has the others";
  receive_result(8).value();
  EXPECT_EQ(fetcher_.take_next().commit.held.round, 8);
  EXPECT_TRUE(fetcher_.has_caught_up());
}

TEST_F(FetcherTest, FragmentsThatTheRunDoesNotHaveAreNotFetched) {
  join();
  EXPECT_FALSE(fetcher_.fetch_state(1, 100));
}

TEST_F(FetcherTest, ANewcomerHasNotCaughtUpWithoutItsState) {
  join();
  EXPECT_FALSE(fetcher_.has_caught_up());
  ASSERT_TRUE(ask());
  receive(PartKind::kState, 4, Bytes(100)).value();
  EXPECT_TRUE(fetcher_.has_caught_up());
}

TEST_F(FetcherTest, WhatNobodyWillHoldAgainEndsThisMember) {
  fetcher_.miss(commit(0), now_);
  const swarm::NotHeld never{
      .header = {.round = 0}, .kind = PartKind::kResult, .fragment = 0, .never = true};
  fetcher_.refused(1, never);
  ASSERT_TRUE(ask());
  donors_[1] = {.number = 2, .is_lost = true};
  EXPECT_TRUE(ask()) << "who is out of reach may hold it";
  fetcher_.refused(2, never);
  EXPECT_EQ(ask().error().message,
            "nobody holds the result of round 0 any more, which this island has missed");
}

TEST_F(FetcherTest, AStateIsNotWaitedForFromWhoIsOutOfReach) {
  join();
  for (auto& donor : donors_) donor = {.number = donor.number, .is_lost = true};
  fetcher_.miss(commit(5), now_);
  ASSERT_TRUE(ask());
  for (auto& donor : donors_) donor = {.number = donor.number, .is_open = true};
  ASSERT_TRUE(ask());
  EXPECT_EQ(rounds_asked(PartKind::kState), Rounds{5}) << "the newer one";
}

TEST_F(FetcherTest, WhoDidNotHoldItIsAskedAgainWhenNobodyElseIsLeft) {
  fetcher_.miss(commit(0), now_);
  ASSERT_TRUE(ask());
  const swarm::NotHeld not_yet{.header = {.round = 0}, .kind = PartKind::kResult};
  fetcher_.refused(1, not_yet);
  EXPECT_FALSE(fetcher_.retry(donors_, seconds(60), now_).value()) << "2 is left";
  ASSERT_TRUE(ask());
  fetcher_.refused(2, not_yet);
  EXPECT_TRUE(fetcher_.retry(donors_, seconds(60), now_).value());
  ASSERT_TRUE(ask());
  EXPECT_EQ(asked_.size(), 3U);
  now_ += seconds(61);
  EXPECT_FALSE(fetcher_.retry(donors_, seconds(60), now_)) << "but not for ever";
}

TEST_F(FetcherTest, AResultWhoseTurnHasNotComeIsNotWaitedForInVain) {
  join();
  fetcher_.miss(commit(5), now_);
  ASSERT_TRUE(ask());
  now_ += seconds(100);
  EXPECT_TRUE(fetcher_.retry(donors_, seconds(60), now_));
  receive(PartKind::kState, 4, Bytes(100)).value();
  EXPECT_TRUE(fetcher_.retry(donors_, seconds(60), now_ + seconds(59)));
  EXPECT_FALSE(fetcher_.retry(donors_, seconds(60), now_ + seconds(61)));
}

TEST_F(FetcherTest, WhoIsSilentIsLeftForAnother) {
  fetcher_.miss(commit(0), now_);
  ASSERT_TRUE(ask());
  EXPECT_TRUE(fetcher_.give_up_on_silent(now_).empty());
  EXPECT_EQ(fetcher_.give_up_on_silent(now_ + seconds(1)), std::set<int32_t>{1});
  ASSERT_TRUE(ask());
  ASSERT_EQ(asked_.size(), 2U);
  EXPECT_EQ(asked_[1].number, 2);
}

TEST_F(FetcherTest, WhatWasAskedOverAConnectionThatBrokeIsAskedAnew) {
  fetcher_.miss(commit(0), now_);
  is_up_ = false;
  ASSERT_TRUE(ask());
  is_up_ = true;
  ASSERT_TRUE(ask());
  ASSERT_EQ(asked_.size(), 1U);
  fetcher_.lost(1);
  ASSERT_TRUE(ask());
  EXPECT_EQ(asked_.size(), 2U);
}

TEST_F(FetcherTest, OnlyWhatWasAskedForIsTaken) {
  EXPECT_TRUE(std::holds_alternative<Fetcher::Nothing>(receive_result(0).value()))
      << "it may have been wanted once";
  fetcher_.miss(commit(0), now_);
  ASSERT_TRUE(ask());
  EXPECT_FALSE(receive_result(0, /*number=*/2)) << "1 was asked";
  EXPECT_THROW(static_cast<void>(receive(PartKind::kResult, 0, Bytes(3))), InputError);
}

}  // namespace
}  // namespace atl::collective
