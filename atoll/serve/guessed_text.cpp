#include "atoll/serve/guessed_text.h"

#include <algorithm>
#include <utility>

#include "atoll/decoding/pass_guesses.h"

namespace atl::serve {
namespace {

constexpr double kNewest = 0.2;      // What the newest round trip counts.
constexpr double kLongestJump = 3;   // A server that is replaced makes one of a second.
constexpr double kUsualModel = 0.6;  // Of a model's guesses are right.

/// The longer the match, the surer.
template <size_t... kMatched>
std::array<decoding::Acceptance, sizeof...(kMatched)> usual(
    std::index_sequence<kMatched...> /*all*/) {
  const auto of = [](size_t matched) {
    const auto length = static_cast<double>(matched);
    return decoding::Acceptance(matched == 0 ? kUsualModel : length / (length + 2));
  };
  return {of(kMatched)...};
}

}  // namespace

GuessedText::GuessedText(std::unique_ptr<Sequence> sequence)
    : sequence_(std::move(sequence)),
      ids_(sequence_->tokens()),
      acceptance_(usual(std::make_index_sequence<decoding::NgramDraft::kMostMatched + 1>())) {}

GuessedText::Taken GuessedText::take(int64_t position, const decoding::Outcome& outcome, Time now) {
  const int64_t length = std::ssize(sequence_->tokens());
  Taken taken{.is_done = sequence_->take(position, outcome)};
  while (!sent_.empty() && sent_.front().first <= position) sent_.pop_front();
  if (std::ssize(sequence_->tokens()) == length) return taken;
  if (has_begun_ && !sent_.empty()) {
    const double seconds = atl::seconds(now - sent_.front().second);
    const double before = round_trip_s_.value_or(seconds);
    round_trip_s_ = before + kNewest * (std::min(seconds, kLongestJump * before) - before);
  }
  has_begun_ = true;
  const int64_t id = sequence_->tokens().back();
  if (!sources_.empty()) {
    taken.was_right = ids_[static_cast<size_t>(length)] == id;
    taken.was_wrong = !taken.was_right;
    acceptance_.at(sources_.front()).note(taken.was_right);
    sources_.pop_front();
    if (taken.was_right) return taken;
  }
  // It is another text now than the one that was supposed.
  sources_.clear();
  sequence_->suppose_nothing();
  if (taken.was_wrong) sent_.clear();
  ids_.resize(static_cast<size_t>(length));
  ids_.push_back(id);
  return taken;
}

void GuessedText::sent(Time now) {
  if (sent_.empty() || sent_.back().first < length()) sent_.emplace_back(length(), now);
}

decoding::GuessTimes GuessedText::times(double step_s) const {
  return {.round_trip_s = std::max(round_trip_s_.value_or(0.1), 1e-6), .step_s = step_s};
}

/// Beside those that there are. The last token's row is not read: nothing follows it.
int64_t GuessedText::num_wanted(int64_t most, int64_t num_ahead) const {
  if (!has_begun_) return 0;
  return std::min({most, num_ahead, sequence_->num_to_come() - 1}) - num_guesses();
}

bool GuessedText::add(int64_t id, size_t source) {
  if (!sequence_->suppose(id)) return false;
  ids_.push_back(id);
  sources_.push_back(source);
  return true;
}

/// `count` of them, up to the first that cannot be.
int64_t GuessedText::add_first(std::span<const int64_t> ids, int64_t count, size_t source) {
  int64_t added = 0;
  while (added < count && add(ids[static_cast<size_t>(added)], source)) ++added;
  return added;
}

int64_t GuessedText::guess_from_itself(int64_t most, const std::optional<Model>& model) {
  const int64_t before = num_guesses();
  while (num_wanted(most, most) > 0) {
    const auto draft = decoding::ngram_draft(ids_, num_wanted(most, most));
    if (draft.ids.empty()) break;
    const auto source = static_cast<size_t>(draft.num_matched);
    decoding::Acceptance& acceptance = acceptance_.at(source);
    const decoding::GuessTimes own = times(0);
    const int64_t num_ahead = decoding::choose_num_ahead(acceptance.rate(), own, most);
    if (num_ahead == 0) acceptance.fade();
    if (model) {
      const decoding::GuessTimes its = times(model->step_s);
      const double rate = acceptance_[kModel].rate();
      const int64_t its_ahead = decoding::choose_num_ahead(rate, its, most);
      if (decoding::tokens_per_s(rate, its, its_ahead) >
          decoding::tokens_per_s(acceptance.rate(), own, num_ahead)) {
        break;
      }
    }
    const int64_t count = std::min(num_wanted(most, num_ahead), std::ssize(draft.ids));
    const int64_t added = add_first(draft.ids, count, source);
    if (added == 0 || added < count) break;
  }
  return num_guesses() - before;
}

int64_t GuessedText::guess_for_pass(int64_t most, double cost) {
  if (num_wanted(most, most) <= 0) return 0;
  const auto draft = decoding::ngram_draft(ids_, num_wanted(most, most));
  if (draft.ids.empty()) return 0;
  const auto source = static_cast<size_t>(draft.num_matched);
  decoding::Acceptance& acceptance = acceptance_.at(source);
  const int64_t num_worth = decoding::choose_num_guesses(acceptance.rate(), cost, most);
  if (num_worth == 0) acceptance.fade();
  const int64_t count = std::min(num_worth, std::ssize(draft.ids));
  return add_first(draft.ids, count, source);
}

void GuessedText::forget_guesses() {
  sources_.clear();
  sequence_->suppose_nothing();
  ids_.resize(sequence_->tokens().size());
}

bool GuessedText::wants_guess(int64_t most, const Model& model) {
  if (ends_at_ == length() || num_wanted(most, most) <= 0) return false;
  decoding::Acceptance& acceptance = acceptance_[kModel];
  const int64_t num_ahead =
      decoding::choose_num_ahead(acceptance.rate(), times(model.step_s), most);
  if (num_ahead == 0) acceptance.fade();
  return num_wanted(most, num_ahead) > 0;
}

bool GuessedText::guess(const at::Tensor& row) {
  const auto id = sequence_->guess(length(), row);
  if (id && add(*id, kModel)) return true;
  ends_at_ = length();
  return false;
}

}  // namespace atl::serve
