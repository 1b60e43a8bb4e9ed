#include "atoll/decoding/lookahead.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "atoll/base/random.h"

namespace atl::decoding {
namespace {

/// The same, token by token: guesses are made, sent, and found right or wrong by chance.
double simulated(double acceptance, const GuessTimes& times, size_t ahead) {
  double now = 0;
  int64_t num_tokens = 0;
  uint64_t draw = 0;
  while (num_tokens < 200'000) {
    std::vector<double> known;  // When what follows the known token, and each guess, is known.
    double sent = now;
    for (bool is_right = true; is_right;) {
      known.push_back(sent + times.round_trip_s + times.step_s / 2);
      ++num_tokens;  // What follows is a token, whatever was guessed.
      is_right = random_uniform(3, 1, draw++) < acceptance;
      const double free = known.size() > ahead ? known[known.size() - 1 - ahead] : 0;
      sent = std::max(sent, free) + times.step_s;
    }
    now = known.back();
  }
  return static_cast<double>(num_tokens) / now;
}

TEST(LookaheadTest, RatesAreThoseOfASimulation) {
  for (const double acceptance : {0.2, 0.6, 0.9}) {
    for (const double step : {0.0, 0.008, 0.05}) {
      for (const size_t ahead : {1, 3, 9}) {
        const GuessTimes times{.round_trip_s = 0.1, .step_s = step};
        const double expected = simulated(acceptance, times, ahead);
        EXPECT_NEAR(tokens_per_s(acceptance, times, static_cast<int64_t>(ahead)), expected,
                    0.015 * expected)
            << acceptance << " " << step << " " << ahead;
      }
    }
  }
}

TEST(LookaheadTest, WithoutGuessesATokenCostsARoundTrip) {
  EXPECT_DOUBLE_EQ(tokens_per_s(0.9, {.round_trip_s = 0.08, .step_s = 0.01}, 0), 12.5);
}

TEST(LookaheadTest, BetterGuessesAndLongerWaysAreWorthMoreOfThem) {
  const auto chosen = [](double acceptance, double round_trip, double step) {
    return choose_num_ahead(acceptance, {.round_trip_s = round_trip, .step_s = step}, 16);
  };
  EXPECT_LT(chosen(0.3, 0.1, 0.008), chosen(0.6, 0.1, 0.008));
  EXPECT_LT(chosen(0.6, 0.1, 0.008), chosen(0.9, 0.1, 0.008));
  EXPECT_LT(chosen(0.8, 0.02, 0.008), chosen(0.8, 0.2, 0.008));
  EXPECT_EQ(chosen(0.99, 0.1, 0), 16);
  // Which are never right, or slower than the chain, are not worth their rows.
  EXPECT_EQ(chosen(0.01, 0.1, 0.001), 0);
  EXPECT_EQ(chosen(0.3, 0.01, 0.05), 0);
  EXPECT_EQ(choose_num_ahead(0.9, {}, 0), 0);
}

TEST(LookaheadTest, NoChoiceIsMuchWorseThanTheBest) {
  for (const double acceptance : {0.1, 0.5, 0.8, 0.95}) {
    for (const double step : {0.0, 0.004, 0.03}) {
      const GuessTimes times{.round_trip_s = 0.09, .step_s = step};
      const double chosen =
          tokens_per_s(acceptance, times, choose_num_ahead(acceptance, times, 16));
      for (int64_t ahead = 0; ahead <= 16; ++ahead) {
        EXPECT_GE(chosen, 0.97 * tokens_per_s(acceptance, times, ahead));
      }
    }
  }
}

TEST(AcceptanceTest, BeginsWithWhatIsUsualAndFollowsWhatHappens) {
  Acceptance acceptance(0.5);
  EXPECT_DOUBLE_EQ(acceptance.rate(), 0.5);
  for (int i = 0; i < 300; ++i) acceptance.note(i % 4 != 0);
  EXPECT_NEAR(acceptance.rate(), 0.75, 0.05);
  for (int i = 0; i < 300; ++i) acceptance.note(false);
  EXPECT_LT(acceptance.rate(), 0.01);
  for (int i = 0; i < 100; ++i) acceptance.fade();
  EXPECT_NEAR(acceptance.rate(), 0.5, 0.01);
}

}  // namespace
}  // namespace atl::decoding
