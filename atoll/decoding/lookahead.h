#pragma once
// How many guessed tokens of a text are worth having under way at once. Guesses are sent on as they
// are made, behind a token that is known: each is known to be right, or wrong, a round trip after
// the one before it was sent. Pure.
#include <cstdint>

namespace atl::decoding {

/// How often guesses of one kind were right lately. It begins with what is usual.
class Acceptance {
 public:
  /// `usual`: from 0 to 1.
  explicit Acceptance(double usual) : usual_(usual), right_(usual * kUsualWeight) {}

  void note(bool is_right);
  /// None was made for it would do no good: after a while they are worth a try again.
  void fade();
  /// From 0 to 1.
  double rate() const { return right_ / tried_; }

 private:
  static constexpr double kUsualWeight = 4;  // As if so many had been seen.

  double usual_;
  double right_;
  double tried_ = kUsualWeight;
};

struct GuessTimes {
  double round_trip_s = 0.1;  // From sending a token until what follows it is known; over 0.
  double step_s = 0;          // To make a guess; the next one waits for it.
};

/// By how many tokens a second a text grows, on average, with so many guesses under way at most,
/// each right with that probability, from 0 to 1, where those before it are.
double tokens_per_s(double acceptance, const GuessTimes& times, int64_t num_ahead);

/// The fewest guesses, at most `most`, with which a text grows nearly as fast as it can: those
/// beyond cost the servers rows that are seldom of use.
int64_t choose_num_ahead(double acceptance, const GuessTimes& times, int64_t most);

}  // namespace atl::decoding
