#include "atoll/serve/guessed_text.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr int64_t kVocab = 61;
constexpr int64_t kMost = 8;
constexpr GuessedText::Model kModel{.step_s = 0.001};

/// Logits with which that token is taken.
at::Tensor row_of(int64_t id) {
  const at::Tensor row_V = at::full({kVocab}, 0.0F);
  row_V.mutable_data_ptr<float>()[id] = 50;
  return row_V;
}

class GuessedTextTest : public ::testing::Test {
 protected:
  GuessedText make(std::vector<int64_t> prompt, int64_t max_tokens = 100) {
    decoding::GenerationRequest request{.prompt = std::move(prompt),
                                        .max_tokens = max_tokens,
                                        .ends = {9},
                                        .sampler = {.temperature = 0}};
    return GuessedText(std::make_unique<Answer>(1, std::move(request), kVocab, kContext, heard_));
  }
  GuessedText::Taken take(GuessedText& text, int64_t id) {
    now_ += std::chrono::milliseconds(100);
    const int64_t position = std::ssize(text.sequence().tokens()) - 1;
    return text.take(position, text.sequence().follow(position, row_of(id)), now_);
  }
  bool guess(GuessedText& text, int64_t id) { return text.guess(row_of(id)); }

  Time now_{std::chrono::seconds(1)};
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
};

TEST_F(GuessedTextTest, RightGuessesStayAndAWrongOneTakesAllBehindItAway) {
  auto text = make({1, 2, 3});
  take(text, 4);
  for (const int64_t id : {5, 6, 7, 8}) EXPECT_TRUE(guess(text, id));
  EXPECT_THAT(text.ids(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(text.num_guesses(), 4);
  EXPECT_TRUE(take(text, 5).was_right);
  EXPECT_EQ(text.num_guesses(), 3);
  EXPECT_TRUE(take(text, 20).was_wrong);
  EXPECT_THAT(text.ids(), ElementsAre(1, 2, 3, 4, 5, 20));
  EXPECT_TRUE(guess(text, 21));
  const auto taken = take(text, 21);
  EXPECT_TRUE(taken.was_right);
  EXPECT_FALSE(take(text, 22).was_right);  // Nobody had guessed it.
  EXPECT_THAT(text.ids(), ElementsAre(1, 2, 3, 4, 5, 20, 21, 22));
}

TEST_F(GuessedTextTest, NothingIsGuessedBeforeTheFirstTokenNorBehindTheLast) {
  auto text = make({1, 2, 3}, /*max_tokens=*/4);
  EXPECT_FALSE(text.wants_guess(kMost, kModel));
  take(text, 4);
  // Three are to come; what the last one would be followed by nobody wants to know.
  while (text.wants_guess(kMost, kModel)) guess(text, 10 + text.num_guesses());
  EXPECT_EQ(text.num_guesses(), 2);
}

TEST_F(GuessedTextTest, AnEndIsNotGuessedTwice) {
  auto text = make({1, 2, 3});
  take(text, 4);
  EXPECT_TRUE(text.wants_guess(kMost, kModel));
  EXPECT_FALSE(guess(text, 9));
  EXPECT_FALSE(text.wants_guess(kMost, kModel));
  take(text, 5);
  EXPECT_TRUE(text.wants_guess(kMost, kModel));
}

TEST_F(GuessedTextTest, WhatRepeatsItselfGoesOnAsItDidAsFarAsThatIsLikely) {
  auto text = make({1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 1, 2, 3, 4, 5, 6, 7});
  take(text, 8);
  EXPECT_GT(text.guess_from_itself(kMost, std::nullopt), 3);
  EXPECT_EQ(text.ids().at(21), 10);
  for (const int64_t id : {10, 11, 12}) EXPECT_TRUE(take(text, id).was_right);
  // One after the other they turn out wrong: fewer are worth their rows.
  auto other = make(std::vector<int64_t>(40, 7));
  int64_t last = 0;
  for (int64_t i = 0; i < 40; ++i) {
    take(other, i % 2 == 0 ? 7 : 30 + i / 2);
    last = other.guess_from_itself(kMost, std::nullopt);
  }
  EXPECT_LE(last, 1);
}

TEST_F(GuessedTextTest, WhereAModelGuessesBetterItIsAsked) {
  // Two tokens have been there before, with others behind them each time.
  auto text = make({1, 2, 20, 1, 2, 21, 1});
  take(text, 2);
  auto alone = make({1, 2, 20, 1, 2, 21, 1});
  take(alone, 2);
  EXPECT_GT(alone.guess_from_itself(kMost, std::nullopt), 0);
  EXPECT_EQ(text.guess_from_itself(kMost, kModel), 0);
  EXPECT_TRUE(text.wants_guess(kMost, kModel));
}

TEST_F(GuessedTextTest, TheWayAndTheStepSayHowManyAreUnderWay) {
  const auto num_guesses = [&](double step_s, int way_ms) {
    auto text = make({1, 2, 3});
    for (int64_t id = 4; id < 40; ++id) {
      if (id == 9) continue;
      if (text.has_begun()) {
        text.sent(now_);
        guess(text, id);
      }
      now_ += std::chrono::milliseconds(way_ms - 100);
      take(text, id);
    }
    while (text.wants_guess(kMost * 4, {.step_s = step_s})) guess(text, 50);
    return text.num_guesses();
  };
  EXPECT_GT(num_guesses(0.005, 200), num_guesses(0.005, 10));
  EXPECT_GT(num_guesses(0.005, 200), num_guesses(0.05, 200));
  EXPECT_EQ(num_guesses(0.5, 100), 0);
}

}  // namespace
}  // namespace atl::serve
