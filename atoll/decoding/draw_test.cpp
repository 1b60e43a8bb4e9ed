#include "atoll/decoding/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/error.h"

namespace atl::decoding {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

const std::vector<float> kLogits{1, 3, 2, 3};
const GenerationRequest kGreedy{.prompt = {0}, .sampler = {.temperature = 0}};

int64_t drawn(const GenerationRequest& request) {
  std::vector<float> logits = kLogits;
  return Draw(request, 4).next(logits, 1).id;
}

TEST(DrawTest, ScoresAreTheSoftmaxOfTheLogitsTheLikeliestFirst) {
  const double log_sum = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  const TokenScore score = score_of(kLogits, 2, 3);
  EXPECT_NEAR(score.logprob, 2 - log_sum, 1e-12);
  ASSERT_EQ(score.top.size(), 3U);
  EXPECT_EQ(score.top[0].first, 1);
  EXPECT_EQ(score.top[1].first, 3);
  EXPECT_EQ(score.top[2].first, 2);
  EXPECT_NEAR(score.top[1].second, 3 - log_sum, 1e-12);
  EXPECT_EQ(score_of(kLogits, 0, 100).top.size(), 4U);
}

TEST(DrawTest, ABiasComesBeforeAllElseAndTheScoreBeforeIt) {
  GenerationRequest request = kGreedy;
  request.logit_bias = {{0, 100.0F}};
  EXPECT_EQ(drawn(request), 0);
  request.top_logprobs = 1;
  std::vector<float> logits = kLogits;
  const TokenScore score = Draw(request, 4).next(logits, 1);
  EXPECT_EQ(score.id, 0);
  EXPECT_NEAR(score.logprob, score_of(kLogits, 0, 0).logprob, 1e-12);
  EXPECT_EQ(score.top[0].first, 1);
}

TEST(DrawTest, WhatIsInTheTextIsPenalised) {
  GenerationRequest request = kGreedy;
  request.sampler.repetition_penalty = 2;
  request.prompt = {1};
  EXPECT_EQ(drawn(request), 3);
  Draw draw(request, 4);
  draw.add(3);
  std::vector<float> logits = kLogits;
  EXPECT_EQ(draw.next(logits, 1).id, 2);
}

TEST(DrawTest, OfTheseTwoOnlyWhatWasMadeIsPenalised) {
  GenerationRequest request = kGreedy;
  request.sampler.presence_penalty = 1.5;
  request.prompt = {1};
  Draw draw(request, 4);
  std::vector<float> logits = kLogits;
  EXPECT_EQ(draw.next(logits, 1).id, 1);
  draw.add(1);
  logits = kLogits;
  EXPECT_EQ(draw.next(logits, 2).id, 3);
}

TEST(DrawTest, IdsOverTheVocabularyAreRefusedByName) {
  GenerationRequest request = kGreedy;
  request.prompt = {4};
  EXPECT_THROW(Draw(request, 4), InputError);
  request.prompt = {3};
  request.logit_bias = {{-1, 1.0F}};
  EXPECT_THROW(Draw(request, 4), InputError);
}

}  // namespace
}  // namespace atl::decoding
