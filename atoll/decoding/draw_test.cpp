#include "atoll/decoding/draw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/grammar/json_schema.h"

namespace atl::decoding {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

const std::vector<float> kLogits{1, 3, 2, 3};
const GenerationRequest kGreedy{.prompt = {0}, .sampler = {.temperature = 0}};

TokenScore next(const Draw& draw, std::vector<float> logits, int64_t position) {
  return follow(draw.order(position), logits).score;
}

int64_t drawn(const GenerationRequest& request) { return next(Draw(request, 4), kLogits, 1).id; }

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
  const TokenScore score = next(Draw(request, 4), kLogits, 1);
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
  EXPECT_EQ(next(draw, kLogits, 1).id, 2);
}

TEST(DrawTest, OfTheseTwoOnlyWhatWasMadeIsPenalised) {
  GenerationRequest request = kGreedy;
  request.sampler.presence_penalty = 1.5;
  request.prompt = {1};
  Draw draw(request, 4);
  EXPECT_EQ(next(draw, kLogits, 1).id, 1);
  draw.add(1);
  EXPECT_EQ(next(draw, kLogits, 2).id, 3);
}

TEST(DrawTest, IdsOverTheVocabularyAreRefusedByName) {
  GenerationRequest request = kGreedy;
  request.prompt = {4};
  EXPECT_THROW(Draw(request, 4), InputError);
  request.prompt = {3};
  request.logit_bias = {{-1, 1.0F}};
  EXPECT_THROW(Draw(request, 4), InputError);
}

/// Ids 0 to 3 are a, b, c and the end.
std::shared_ptr<const grammar::TokenMasks> choice(const std::vector<std::string>& texts) {
  const std::vector<std::string> tokens{"a", "b", "c", ""};
  return std::make_shared<grammar::TokenMasks>(
      grammar::choice_grammar(texts),
      std::make_shared<grammar::Vocabulary>(tokens, std::vector<grammar::TokenId>{3}));
}

TEST(DrawTest, AnAnswerStaysWithinItsGrammarWhateverTheModelFinds) {
  GenerationRequest request = kGreedy;
  request.ends = {3};
  request.grammar = choice({"ca", "cac"});
  for (const double temperature : {0.0, 1.0}) {
    request.sampler.temperature = temperature;
    Draw draw(request, 4);
    for (const int64_t wanted : {2, 0}) {
      EXPECT_EQ(next(draw, kLogits, 1).id, wanted);
      draw.add(wanted);
      EXPECT_FALSE(draw.is_over());
    }
    std::vector<float> logits{0, 100, 0, 50};  // It may end here, or go on with c.
    EXPECT_EQ(next(draw, logits, 3).id, 3);
    Draw other = draw;  // A copy goes its own way.
    other.add(2);
    EXPECT_TRUE(other.is_over());
    EXPECT_FALSE(draw.is_over());
  }
}

TEST(DrawTest, ScoresAreTheModelsOwnBesideAGrammar) {
  GenerationRequest request = kGreedy;
  request.grammar = choice({"a"});
  request.top_logprobs = 1;
  const TokenScore score = next(Draw(request, 4), kLogits, 1);
  EXPECT_EQ(score.id, 0);
  EXPECT_NEAR(score.logprob, score_of(kLogits, 0, 0).logprob, 1e-12);
  EXPECT_EQ(score.top[0].first, 1);
}

TEST(DrawTest, WhereNoTokenGoesOnItIsSaid) {
  GenerationRequest request = kGreedy;
  request.grammar = choice({"ax"});
  Draw draw(request, 4);
  EXPECT_EQ(next(draw, kLogits, 1).id, 0);
  draw.add(0);
  EXPECT_THROW(next(draw, kLogits, 2), InputError);
  EXPECT_THROW(Draw(request, 5), InputError);  // A grammar of another vocabulary.
}

TEST(DrawTest, DamagedLogitsAreFoundAmongForbiddenIdsToo) {
  GenerationRequest request = kGreedy;
  request.grammar = choice({"a"});
  for (const float bad : {std::nanf(""), -HUGE_VALF, HUGE_VALF}) {
    std::vector<float> logits{1, bad, 2, 3};
    EXPECT_THROW(next(Draw(request, 4), logits, 1), InputError);
  }
}

TEST(DrawTest, GuessesThatMayNotFollowChangeNothing) {
  GenerationRequest request = kGreedy;
  request.ends = {3};
  request.grammar = choice({"ab", "ac"});
  Draw draw(request, 4);
  EXPECT_FALSE(draw.add_guess(1));
  EXPECT_TRUE(draw.add_guess(0));
  EXPECT_FALSE(draw.add_guess(0));
  EXPECT_FALSE(draw.add_guess(3));
  EXPECT_EQ(next(draw, kLogits, 2).id, 1);
}

}  // namespace
}  // namespace atl::decoding
