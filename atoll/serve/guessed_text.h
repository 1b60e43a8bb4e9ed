#pragma once
// A text, and what it is guessed to go on with: the guesses are read behind its tokens, by a chain
// of servers or in one pass here, and each turns out right or wrong as its tokens are made. How
// good they have been, and how long an answer takes, says how many are made. Never changes what the
// text becomes. Owned by one thread.
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/decoding/lookahead.h"
#include "atoll/decoding/ngram_draft.h"
#include "atoll/serve/sequence.h"

namespace atl::serve {

class GuessedText {
 public:
  explicit GuessedText(std::unique_ptr<Sequence> sequence);

  Sequence& sequence() const { return *sequence_; }
  /// Its tokens, and the guesses behind them.
  const std::vector<int64_t>& ids() const { return ids_; }
  int64_t length() const { return std::ssize(ids_); }
  /// A token of it was made.
  bool has_begun() const { return has_begun_; }
  int64_t num_guesses() const { return length() - std::ssize(sequence_->tokens()); }

  struct Taken {
    bool is_done = false;    // It wants nothing more.
    bool was_right = false;  // A guess was.
    bool was_wrong = false;  // So there are none any more, and ids() has changed.
  };
  /// As Sequence::take() does, with what came at that time.
  Taken take(int64_t position, const decoding::Outcome& outcome, Time now);
  /// All of ids() is under way from now on.
  void sent(Time now);

  /// A model that makes guesses, as its user sees it.
  struct Model {
    double step_s = 0;  // For a guess.
  };
  /// Guesses from what is in the text already, as far as they are likely, or, where there is a
  /// model, likelier than its; `most` guesses at once. How many came.
  int64_t guess_from_itself(int64_t most, const std::optional<Model>& model);
  /// Whether a guess of the model's is wanted now. Of a text of which no token was made yet none
  /// is.
  bool wants_guess(int64_t most, const Model& model);
  /// Guesses from what is in the text already, as many as are worth it in one pass here, of which
  /// each is so much of a pass (decoding/pass_guesses.h); `most` at most. How many came.
  int64_t guess_for_pass(int64_t most, double cost);
  /// As if none had been made.
  void forget_guesses();
  /// Takes it from the model's logits (V), behind ids(), which are overwritten. False: the text
  /// ends there, as the model sees it. Throws as Sequence::guess() does.
  bool guess(const at::Tensor& row);

 private:
  static constexpr size_t kModel = 0;  // Else the number of tokens that were matched.

  decoding::GuessTimes times(double step_s) const;
  int64_t num_wanted(int64_t most, int64_t num_ahead) const;
  bool add(int64_t id, size_t source);
  int64_t add_first(std::span<const int64_t> ids, int64_t count, size_t source);

  std::unique_ptr<Sequence> sequence_;
  std::vector<int64_t> ids_;
  std::deque<size_t> sources_;  // Of the guesses.
  std::array<decoding::Acceptance, decoding::NgramDraft::kMostMatched + 1> acceptance_;
  std::deque<std::pair<int64_t, Time>> sent_;  // Up to which position when.
  std::optional<double> round_trip_s_;
  bool has_begun_ = false;
  int64_t ends_at_ = -1;  // The length at which it ends, as the model sees it.
};

}  // namespace atl::serve
