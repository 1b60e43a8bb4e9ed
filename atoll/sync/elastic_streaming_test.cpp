// Streaming DiLoCo in elastic pace, against its definition: two fragments of two values each.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "atoll/sync/streaming_diloco.h"
#include "atoll/testing_torch/scripted_member.h"

namespace atl::sync {
namespace {

/// With the outer step new = old - mean, so that every number is by hand.
struct Member : ScriptedMember<StreamingDiLoCo> {
  explicit Member(double alpha = 0)
      : ScriptedMember({.method = "streaming_diloco",
                        .sync_every = 8,
                        .outer_lr = 1,
                        .outer_momentum = 0,
                        .outer_optimizer = "sgd",
                        .num_fragments = 2,
                        .fragment_pattern = "balanced",
                        .fragment_update_alpha = alpha,
                        .codec = "fp32"}) {}
  /// The first value of a fragment.
  float live(int64_t fragment) const { return ScriptedMember::live(2 * fragment); }
  float global(int64_t fragment) const { return ScriptedMember::global(2 * fragment); }
};

/// Of fragment 0 after round 0, whose mean is 5.
Digest digest_of_first_round() {
  Member other;
  other.run.due = {.round = 0, .fragment = 0, .step = 1};
  other.train();
  other.run.commit(0, 2, 5);
  return other.run.wait(0).value().digest;
}

TEST(ElasticStreamingTest, EachFragmentGoesOnFromItsOwnSnapshot) {
  Member one;
  one.train(3);
  EXPECT_TRUE(one.run.begun.empty()) << "nothing is due before the run says so";
  one.run.due = {.round = 0, .fragment = 0, .step = 5};
  one.train();
  const auto& first = one.run.begun.at(0);
  EXPECT_EQ(first.fragment, 0);
  EXPECT_EQ(first.weight, 4 * Member::kTokens);
  EXPECT_EQ(first.step, 5);
  EXPECT_EQ(std::vector(first.values.begin(), first.values.end()), std::vector(2, 4.0F));
  one.train(2);
  EXPECT_EQ(one.global(0), 100);
  one.run.commit(0, 9, 7);
  one.train();
  EXPECT_EQ(one.global(0), 93);
  EXPECT_EQ(one.live(0), 90) << "global 93, less the three steps since the snapshot";
  EXPECT_EQ(one.global(1), 100);
  EXPECT_EQ(one.live(1), 93) << "seven steps of its own";
  EXPECT_EQ(one.strategy.pace().published_step(one.step), 9);

  one.run.due = {.round = 1, .fragment = 1, .base = 0, .step = 9};
  one.train();
  const auto& second = one.run.begun.at(1);
  EXPECT_EQ(second.weight, 8 * Member::kTokens) << "no round has counted this fragment's";
  EXPECT_EQ(second.values[0], 8.0F);
  one.run.commit(1, 12, 6);
  one.train();
  EXPECT_EQ(one.global(1), 94);
  EXPECT_EQ(one.live(1), 93);
  EXPECT_EQ(one.live(0), 88);

  one.run.due = {.round = 2, .fragment = 0, .base = 1, .step = 12};
  one.train();
  EXPECT_EQ(one.run.begun.at(2).weight, 6 * Member::kTokens) << "since round 0";
  EXPECT_EQ(one.run.begun.at(2).values[0], 6.0F) << "global 93 - live 87";
}

TEST(ElasticStreamingTest, AlphaKeepsAShareOfTheSnapshot) {
  Member one(0.25);
  one.run.due = {.round = 0, .fragment = 0, .step = 1};
  one.train(4);
  ASSERT_EQ(one.run.begun.at(0).values[0], 1.0F) << "the snapshot is 99";
  one.run.commit(0, 4, 9);
  one.train();
  EXPECT_EQ(one.global(0), 91);
  EXPECT_EQ(one.live(0), 0.25F * 99 + 0.75F * 91 - 4) << "four steps since";
  EXPECT_EQ(one.live(1), 95);
}

TEST(ElasticStreamingTest, WhoWasLateCountsInTheFragmentsNextRound) {
  Member one;
  one.train(2);
  one.run.commit_without(0, 2, 5, digest_of_first_round(), 2);  // It has not heard of it.
  one.run.due = {.round = 1, .fragment = 1, .base = 0, .step = 2};
  one.train();
  EXPECT_EQ(one.global(0), 95);
  EXPECT_EQ(one.live(0), 92) << "100 - 3 steps - what the others learned";
  ASSERT_TRUE(one.run.begun.contains(1));
  one.run.commit(1, 4, 3);
  one.run.due = {.round = 2, .fragment = 0, .base = 1, .step = 4};
  one.train();
  EXPECT_EQ(one.run.begun.at(2).weight, 4 * Member::kTokens) << "all its steps";
  EXPECT_EQ(one.run.begun.at(2).values[0], 4.0F);
}

TEST(ElasticStreamingTest, ARoundWaitsForTheResultBeforeItWhicheverFragmentThatIsOf) {
  Member one;
  one.run.due = {.round = 1, .fragment = 1, .base = 0, .step = 2};
  one.train();
  EXPECT_TRUE(one.run.begun.empty());
}

TEST(ElasticStreamingTest, WhatWasLeftOutIsDroppedInItsFragmentAlone) {
  Member one;
  one.train(3);
  one.run.due = {.round = 0, .fragment = 0, .step = 4};
  one.train();
  one.run.commit(0, 4, 5, /*left_out=*/true);
  one.train();
  EXPECT_EQ(one.live(0), 95);
  EXPECT_EQ(one.live(1), 95) << "five steps";
  one.run.due = {.round = 1, .fragment = 1, .base = 0, .step = 5};
  one.train();
  EXPECT_EQ(one.run.begun.at(1).weight, 6 * Member::kTokens);
}

/// Fragments are fetched one after the other, each as it is then.
TEST(ElasticStreamingTest, ANewcomerAtTheEndIsThereWhenItHasAllFragments) {
  Member other;
  other.strategy.serve();
  std::map<int64_t, std::shared_ptr<const Bytes>> states;  // After a round, of its fragment.
  std::map<int64_t, Digest> digests;
  for (int32_t round = 0; round < 5; ++round) {
    other.run.due = {.round = round, .fragment = round % 2, .base = round - 1, .step = 95 + round};
    other.train();
    other.run.commit(round, 96 + round, 3);
    other.train();
    states[round] = other.run.state_of(round % 2, round);
    digests[round] = other.strategy.held().at(static_cast<size_t>(round % 2));
  }
  Member one;
  ASSERT_TRUE(one.strategy.import_state(1, 1, digests.at(1), *states.at(1)));
  ASSERT_TRUE(one.strategy.import_state(0, 4, digests.at(4), *states.at(4)));
  one.strategy.joined(99, 4);
  EXPECT_EQ(one.strategy.catch_up(99).value().step, 99) << "round 3 is missing";
  one.run.commit_without(3, 99, 3, digests.at(3), 2, 1);
  EXPECT_EQ(one.strategy.catch_up(99).value().step, 100);
  for (const int64_t fragment : {0, 1}) EXPECT_EQ(one.global(fragment), other.global(fragment));
}

/// What a newcomer has missed may be there before its first Due, and be of another fragment than
/// the base.
TEST(ElasticStreamingTest, ARoundWaitsForWhatWasMissed) {
  Member one;
  one.step = one.strategy.catch_up(0).value().step;
  one.run.commit_without(0, 2, 5, digest_of_first_round(), 2);  // During the step.
  one.run.due = {.round = 2, .fragment = 0, .base = -1, .step = 2};
  ASSERT_TRUE(one.strategy.after_step(1));
  EXPECT_TRUE(one.run.begun.empty());
  one.train();
  EXPECT_TRUE(one.run.begun.contains(2));
}

TEST(ElasticStreamingTest, TheLastCommitEndsTheRun) {
  Member one;
  one.run.due = {.round = 0, .fragment = 0, .step = 98};
  one.train();
  one.run.commit(0, 99, 5);
  one.train();
  EXPECT_EQ(one.strategy.catch_up(one.step).value().step, 99);
  one.run.due = {.round = 1, .fragment = 1, .base = 0, .step = 99};
  one.train();
  one.run.commit(1, 100, 5);
  one.train();
  EXPECT_EQ(one.strategy.catch_up(one.step).value().step, 100);
}

}  // namespace
}  // namespace atl::sync
