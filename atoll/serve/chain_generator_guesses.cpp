// What a ChainGenerator's texts are guessed to go on with, and when.
#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/serve/chain_generator.h"

namespace atl::serve {
namespace {

constexpr double kNewestGuess = 0.1;  // What its time counts.

}  // namespace

/// Of a text. Where many are read together, each row counts.
int64_t ChainGenerator::most_guesses() const {
  return options_.max_drafts / std::max<int64_t>(std::ssize(readings_), 1);
}

std::optional<GuessedText::Model> ChainGenerator::draft_model() const {
  if (!draft_) return std::nullopt;
  return GuessedText::Model{.step_s = guess_s_};
}

/// One pass of the draft model. Its guesses go their way at once, while it makes those behind them.
void ChainGenerator::guess() {
  const Time begin = clock_.now();
  std::vector<DraftModel::Text> wanted;
  for (auto it = to_guess_.begin(); it != to_guess_.end();) {
    GuessedText& text = readings_.at(*it).text;
    const DraftModel::Text each{.id = *it, .tenant = text.sequence().tenant(), .ids = text.ids()};
    const bool wants =
        !draft_->gives_up(each) && (text.wants_guess(most_guesses(), *draft_model()) ||
                                    (!text.has_begun() && draft_->lacks(each)));
    if (wants) wanted.push_back(each);
    it = wants ? std::next(it) : to_guess_.erase(it);
  }
  if (wanted.empty()) return;
  const std::vector<DraftModel::Read> read = draft_->read(wanted);
  for (const DraftModel::Read& each : read) {
    Reading& reading = readings_.at(each.id);
    GuessedText& text = reading.text;
    const int64_t length = text.length();
    bool is_good = text.has_begun();  // Else its text was read beforehand.
    try {
      is_good = is_good && text.guess(each.row_V);
    } catch (const InputError&) {  // Its weights are damaged: guesses are no must.
      is_good = false;
    }
    if (!is_good) {
      to_guess_.erase(each.id);
      continue;
    }
    counts_.drafted_tokens += 1 + text.guess_from_itself(most_guesses(), draft_model());
    change(reading, length);
  }
  if (read.empty()) return;
  const double step_s = seconds(clock_.now() - begin);
  guess_s_ = guess_s_ == 0 ? step_s : guess_s_ + kNewestGuess * (step_s - guess_s_);
}

}  // namespace atl::serve
