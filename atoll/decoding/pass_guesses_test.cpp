#include "atoll/decoding/pass_guesses.h"

#include <gtest/gtest.h>

#include "atoll/base/random.h"

namespace atl::decoding {
namespace {

/// The same, pass by pass: guesses turn out right or wrong by chance.
double simulated(double acceptance, double cost, int64_t num_guesses) {
  constexpr int kPasses = 100'000;
  double tokens = 0;
  uint64_t draw = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    int64_t right = 0;
    while (right < num_guesses && random_uniform(5, 1, draw++) < acceptance) ++right;
    tokens += static_cast<double>(right + 1);
  }
  return tokens / (kPasses * (1 + cost * static_cast<double>(num_guesses)));
}

TEST(PassGuessesTest, RatesAreThoseOfASimulation) {
  for (const double acceptance : {0.2, 0.6, 0.95}) {
    for (const int64_t count : {0, 1, 4, 12}) {
      const double expected = simulated(acceptance, 0.15, count);
      EXPECT_NEAR(tokens_per_pass(acceptance, 0.15, count), expected, 0.01 * expected)
          << acceptance << ' ' << count;
    }
  }
}

TEST(PassGuessesTest, SurerAndCheaperGuessesAreWorthMoreOfThem) {
  EXPECT_LT(choose_num_guesses(0.6, 0.1, 16), choose_num_guesses(0.9, 0.1, 16));
  EXPECT_LT(choose_num_guesses(0.8, 0.4, 16), choose_num_guesses(0.8, 0.05, 16));
  EXPECT_EQ(choose_num_guesses(0.99, 0.005, 16), 16);
  EXPECT_EQ(choose_num_guesses(0.99, 0.005, 0), 0);
  // One that makes the pass longer than it makes the text.
  EXPECT_EQ(choose_num_guesses(0.3, 0.35, 16), 0);
}

TEST(PassGuessesTest, TheCostIsWhatPassesWithGuessesTookLonger) {
  GuessCost cost;
  for (int i = 0; i < 100; ++i) {
    cost.note(1, 0, 0.010);
    cost.note(1, 4, 0.014);
  }
  EXPECT_NEAR(cost.value(), 0.1, 0.02);
  // Of other texts it is not known how long they take without guesses.
  const double before = cost.value();
  cost.note(9, 4, 0.5);
  EXPECT_EQ(cost.value(), before);
}

TEST(PassGuessesTest, NowAndThenItIsSeenHowLongAPassTakesWithoutGuesses) {
  GuessCost cost;
  EXPECT_TRUE(cost.wants_plain_pass(1));
  cost.note(1, 0, 0.010);
  EXPECT_FALSE(cost.wants_plain_pass(1));
  EXPECT_TRUE(cost.wants_plain_pass(2));
  int num_guessed = 0;
  for (; !cost.wants_plain_pass(1); ++num_guessed) cost.note(1, 3, 0.013);
  EXPECT_GT(num_guessed, 30);
  EXPECT_LT(num_guessed, 300);
  cost.note(1, 0, 0.010);
  EXPECT_FALSE(cost.wants_plain_pass(1));
}

TEST(PassGuessesTest, ACostThatChanceMadeIsForgottenWhereNothingIsGuessed) {
  GuessCost cost;
  cost.note(1, 0, 0.010);
  for (int i = 0; i < 50; ++i) cost.note(1, 1, 1.0);
  EXPECT_EQ(choose_num_guesses(0.9, cost.value(), 8), 0);
  for (int i = 0; i < 300; ++i) cost.note(1, 0, 0.010);
  EXPECT_GT(choose_num_guesses(0.9, cost.value(), 8), 0);
}

}  // namespace
}  // namespace atl::decoding
