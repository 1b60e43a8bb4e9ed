#include "atoll/rounds/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/method/method.h"

namespace atl::rounds {

Elastic::Elastic(const PaceOptions& options, const method::SyncOptions& sync, Standing& standing,
                 collective::Decisions& decisions)
    : Pace(standing, decisions),
      last_step_(options.last_step),
      keep_every_(options.keep_every),
      num_fragments_(method::num_fragments(sync)),
      clock_(options.last_step) {}

std::vector<OwnRound> Elastic::resumed(int64_t step) {
  standing_.forget_rounds();
  joined(step, -1);
  return {};
}

void Elastic::joined(int64_t step, int64_t last_round) {
  clock_.start(step);
  last_round_ = last_round;
}

int64_t Elastic::step_after(int64_t /*step*/) {
  clock_.trained();
  return clock_.now();
}

Result<std::optional<Task>> Elastic::next(int64_t /*step*/) {
  const bool has_begun = !standing_.open().empty();
  if (has_begun && decisions_.is_decided(standing_.open().begin()->first)) {
    return Take{standing_.open().begin()->first};
  }
  if (auto due = decisions_.take_due()) due_ = due;
  if (!due_ || has_begun || standing_.has_counted() || standing_.stops()) return std::nullopt;
  if (due_->fragment < 0 || due_->fragment >= num_fragments_) {
    return failure(fmt::format("the coordinator called a round of fragment {}, of {} fragments",
                               due_->fragment, num_fragments_));
  }
  if (standing_.is_applied(due_->fragment, due_->round)) {
    due_.reset();
    return std::nullopt;
  }
  const bool has_base =
      due_->base < 0 || standing_.is_applied(due_->base % num_fragments_, due_->base);
  if (!has_base || missed() != nullptr) return std::nullopt;
  return Begin{{.round = due_->round,
                .fragment = due_->fragment,
                .step = due_->step,
                .number = number(due_->fragment, due_->round, due_->step),
                .num_steps = standing_.steps_since(due_->fragment)}};
}

std::optional<Task> Elastic::next_missed() {
  const bool rests = is_catching_up_ && clock_.crossed(keep_every_);
  const collective::Commit* const commit = rests || standing_.stops() ? nullptr : missed();
  if (commit == nullptr) return std::nullopt;
  is_catching_up_ = true;
  const auto& open = standing_.open();
  if (!open.empty() && open.begin()->first < commit->round) return Take{open.begin()->first};
  return take_missed();
}

/// A newcomer at the end of the run: fragments that it has fetched before lack rounds, which are of
/// the fragments in turn.
bool Elastic::has_last_rounds() const {
  return last_round_ >= 0 &&
         *std::ranges::min_element(standing_.applied()) > last_round_ - num_fragments_;
}

CaughtUp Elastic::caught_up(int64_t step) {
  const bool rests = std::exchange(is_catching_up_, false) && clock_.crossed(keep_every_);
  if (has_last_rounds()) clock_.start(last_step_);
  return {.step = std::max(step, clock_.now()), .rests = rests};
}

/// A row counts with the first commit of any fragment that has it. What is unlearned with a round
/// is all that was learned since the last one.
Fate Elastic::taken(const collective::Commit& commit, Fate fate) {
  clock_.committed(commit.step, standing_.steps_in_none());
  if (fate == Fate::kAbstained || fate == Fate::kLeftOut) {
    standing_.set_steps_since(commit.fragment, 0);
  }
  return fate == Fate::kCounted ? Fate::kOvertaken : fate;
}

}  // namespace atl::rounds
