#pragma once
// How many guessed tokens of a text are worth being read in one pass with its newest token, by who
// has the model itself: nothing has a long way to go (that is lookahead.h), but each guess makes
// the pass longer. Pure.
#include <cstdint>
#include <map>

namespace atl::decoding {

/// By how much a guess makes a pass longer, as seen lately. It begins with what is usual.
class GuessCost {
 public:
  /// A pass of the newest tokens of so many texts, and of so many guesses.
  void note(int64_t num_texts, int64_t num_guesses, double seconds);
  /// Whether a pass of so many texts had better be without guesses, to see how long that takes: it
  /// is not known, or was seen long ago.
  bool wants_plain_pass(int64_t num_texts) const;
  /// In passes without guesses.
  double value() const { return cost_; }

 private:
  static constexpr double kUsual = 0.25;
  struct Plain {
    double pass_s = 0;
    int64_t num_since = 0;  // Passes with guesses.
  };

  double cost_ = kUsual;
  std::map<int64_t, Plain> plain_;  // Passes without guesses, by the number of texts.
};

/// By how many tokens a text grows, on average, in the time of a pass without guesses: with so many
/// of them in each pass, each right with that probability where those before it are, and costing
/// so much.
double tokens_per_pass(double acceptance, double cost, int64_t num_guesses);

/// The fewest guesses, at most `most`, with which a text grows nearly as fast as it can.
int64_t choose_num_guesses(double acceptance, double cost, int64_t most);

}  // namespace atl::decoding
