// SparseLoCo in elastic pace, against its definition.
#include <gtest/gtest.h>

#include "atoll/sync/sparse_loco.h"
#include "atoll/testing_torch/scripted_member.h"

namespace atl::sync {
namespace {

/// With beta = 0.5 and an outer learning rate of 1, so that every number is by hand.
struct Member : ScriptedMember<SparseLoCo> {
  Member()
      : ScriptedMember({.method = "sparse_loco",
                        .sync_every = 4,
                        .outer_lr = 1,
                        .error_feedback_decay = 0.5,
                        .codec = "fp32"}) {}
};
class ElasticSparseTest : public testing::Test, public Member {};

TEST_F(ElasticSparseTest, TrainingGoesOnAndWhatWasNotSentIsSentLater) {
  train(3);
  run.due = {.round = 0, .step = 5};
  train();
  EXPECT_EQ(run.begun.at(0).weight, 4 * kTokens);
  EXPECT_EQ(run.begun.at(0).values[0], 4.0F) << "global 100 - live 96";
  train(2);
  run.commit(0, 9, 7, /*left_out=*/false, /*own_share=*/0.25F);
  train();
  EXPECT_EQ(global(), 93);
  EXPECT_EQ(live(), 90) << "global 93, less the three steps since the snapshot";
  run.due = {.round = 1, .base = 0, .step = 15};
  train();
  EXPECT_EQ(run.begun.at(1).weight, 4 * kTokens);
  EXPECT_EQ(run.begun.at(1).values[0], 4.0F + 0.5F * 3) << "and half of the three not sent";
  run.commit(1, 15, 2);
  train();
  EXPECT_EQ(global(), 91);
  EXPECT_EQ(live(), 90) << "what was not sent before is no work of this snapshot";
}

TEST_F(ElasticSparseTest, WhoIsLateKeepsItsWorkAndWhatItHadNotSent) {
  train();
  run.due = {.round = 0, .step = 2};
  train();
  run.commit(0, 2, 2, /*left_out=*/false, /*own_share=*/0);
  train();
  EXPECT_EQ(live(), 97);
  run.due = {.round = 1, .base = 0, .step = 4};
  train();
  EXPECT_EQ(run.begun.at(1).values[0], 2.0F + 0.5F * 2);
  Digest digest{};
  {  // What the others have after a mean of 5.
    const std::vector<float> mean(kSize, 5.0F);
    digest = run.begun.at(1).prepare(mean, std::vector<float>(kSize, 0.0F));
  }
  run.commit_without(1, 4, 5, digest, kSize);
  train();
  EXPECT_EQ(global(), 93);
  EXPECT_EQ(live(), 90) << "98 - 2 + ... moved by what the global ones moved";
  run.due = {.round = 2, .base = 1, .step = 8};
  train();
  EXPECT_EQ(run.begun.at(2).weight, 4 * kTokens) << "all since round 0";
  EXPECT_EQ(run.begun.at(2).values[0], 4.0F + 0.5F * 2);
}

}  // namespace
}  // namespace atl::sync
