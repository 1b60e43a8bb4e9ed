// DiLoCo in elastic pace, against its definition.
#include <gtest/gtest.h>

#include <limits>

#include "atoll/method/method.h"
#include "atoll/sync/diloco.h"
#include "atoll/testing_torch/scripted_member.h"

namespace atl::sync {
namespace {

/// With the outer step new = old - mean, so that every number is by hand.
struct Member : ScriptedMember<DiLoCo> {
  Member()
      : ScriptedMember({.method = "diloco",
                        .sync_every = 4,
                        .outer_lr = 1,
                        .outer_momentum = 0,
                        .outer_optimizer = "sgd",
                        .codec = "fp32"}) {}
};
class ElasticDiLoCoTest : public testing::Test, public Member {};

TEST_F(ElasticDiLoCoTest, TrainingGoesOnAndKeepsWhatItLearnedMeanwhile) {
  train(3);
  EXPECT_TRUE(run.begun.empty()) << "nothing is due before the run says so";
  run.due = {.round = 0, .step = 5};
  train();
  ASSERT_TRUE(run.begun.contains(0));
  const auto& sent = run.begun.at(0);
  EXPECT_EQ(sent.weight, 4 * kTokens);
  EXPECT_EQ(sent.step, 5);
  EXPECT_EQ(sent.values[0], 4.0F) << "global 100 - live 96";
  train(2);
  EXPECT_EQ(live(), 94);
  EXPECT_EQ(global(), 100);
  run.commit(0, 9, 7);  // The others did more.
  train();
  EXPECT_EQ(global(), 93);
  EXPECT_EQ(live(), 90) << "global 93, less the three steps since the snapshot";
  EXPECT_EQ(strategy.pace().published_step(step), 9);
  run.due = {.round = 1, .base = 0, .step = 15};
  train();
  EXPECT_EQ(run.begun.at(1).weight, 4 * kTokens) << "no step twice";
  EXPECT_EQ(run.begun.at(1).values[0], 4.0F);
}

TEST_F(ElasticDiLoCoTest, WhoWasLateCountsInTheNextRound) {
  train(2);
  run.due = {.round = 0, .step = 4};
  train();
  Digest digest{};
  {  // What the others have after a mean of 5.
    const std::vector<float> mean(kSize, 5.0F);
    digest = run.begun.at(0).prepare(mean, {});
  }
  run.commit_without(0, 4, 5, digest, kSize);
  train();
  EXPECT_EQ(global(), 95);
  EXPECT_EQ(live(), 91) << "100 - 4 steps - what the others learned";
  run.due = {.round = 1, .base = 0, .step = 8};
  train();
  EXPECT_EQ(run.begun.at(1).weight, 5 * kTokens) << "all its steps";
  EXPECT_EQ(run.begun.at(1).values[0], 5.0F);
}

TEST_F(ElasticDiLoCoTest, ASnapshotRestsOnTheResultBeforeIt) {
  run.due = {.round = 1, .base = 0, .step = 8};
  train();
  EXPECT_TRUE(run.begun.empty()) << "round 0 is not here yet";
  Member other;
  other.run.due = {.round = 0, .step = 4};
  other.train();
  other.run.commit(0, 4, 5);
  const Digest digest = other.run.wait(0).value().digest;
  run.commit_without(0, 4, 5, digest, kSize);
  train();
  EXPECT_EQ(global(), 95);
  ASSERT_TRUE(run.begun.contains(1));
  EXPECT_EQ(run.begun.at(1).values[0], 2.0F);
}

TEST_F(ElasticDiLoCoTest, WhatCannotBeSentIsDropped) {
  train();
  live_P.fill_(std::numeric_limits<float>::quiet_NaN());
  run.due = {.round = 0, .step = 4};
  train();
  EXPECT_EQ(run.begun.at(0).weight, 0);
  run.commit(0, 4, 5);
  train();
  EXPECT_EQ(live(), 95);
}

TEST_F(ElasticDiLoCoTest, WhatWasLeftOutIsDropped) {
  train(3);
  run.due = {.round = 0, .step = 4};
  train();
  EXPECT_GT(run.begun.at(0).weight, 0);
  run.commit(0, 4, 5, /*left_out=*/true);
  train();
  EXPECT_EQ(live(), 95);
  run.due = {.round = 1, .base = 0, .step = 8};
  train();
  EXPECT_EQ(run.begun.at(1).weight, kTokens) << "only what was learned since";
}

TEST_F(ElasticDiLoCoTest, TheLastCommitEndsTheRun) {
  run.due = {.round = 0, .step = 100};
  train();
  run.commit(0, 100, 5);
  train();
  EXPECT_EQ(strategy.catch_up(step).value().step, 100);
}

}  // namespace
}  // namespace atl::sync
