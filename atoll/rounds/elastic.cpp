#include "atoll/rounds/elastic.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/method/method.h"

namespace atl::rounds {

Elastic::Elastic(const PaceOptions& options, const method::SyncOptions& sync)
    : last_step_(options.last_step),
      keep_every_(options.keep_every),
      num_fragments_(method::num_fragments(sync)),
      clock_(options.last_step) {}

void Elastic::start(int64_t step, int64_t last_round) {
  clock_.start(step);
  last_round_ = last_round;
}

int64_t Elastic::step_after(int64_t /*step*/) {
  clock_.trained();
  return clock_.now();
}

Result<std::optional<Task>> Elastic::next(const Standing& standing, int64_t /*step*/,
                                          collective::Decisions& decisions) {
  const bool has_begun = !standing.open().empty();
  if (has_begun && decisions.is_decided(standing.open().begin()->first)) {
    return Take{standing.open().begin()->first};
  }
  if (auto due = decisions.take_due()) due_ = due;
  if (!due_ || has_begun || standing.has_counted() || standing.stops()) return std::nullopt;
  if (due_->fragment < 0 || due_->fragment >= num_fragments_) {
    return failure(fmt::format("the coordinator called a round of fragment {}, of {} fragments",
                               due_->fragment, num_fragments_));
  }
  if (standing.is_applied(due_->fragment, due_->round)) {
    due_.reset();
    return std::nullopt;
  }
  const bool has_base =
      due_->base < 0 || standing.is_applied(due_->base % num_fragments_, due_->base);
  if (!has_base) return std::nullopt;
  return Begin{{.round = due_->round,
                .fragment = due_->fragment,
                .step = due_->step,
                .number = number(due_->fragment, due_->round, due_->step),
                .num_steps = standing.steps_since(due_->fragment)}};
}

/// A commit of a later round comes after its own.
std::optional<int64_t> Elastic::settled_before(const collective::Commit& missed,
                                               const Standing& standing) const {
  if (standing.open().empty()) return std::nullopt;
  const int64_t own = standing.open().begin()->first;
  return own < missed.round ? std::optional(own) : std::nullopt;
}

/// A newcomer at the end of the run: fragments that it has fetched before lack rounds, which are of
/// the fragments in turn.
bool Elastic::has_last_rounds(const Standing& standing) const {
  return last_round_ >= 0 &&
         *std::ranges::min_element(standing.applied()) > last_round_ - num_fragments_;
}

int64_t Elastic::step_caught_up(int64_t step, const Standing& standing,
                                collective::Decisions& /*decisions*/) {
  if (has_last_rounds(standing)) clock_.start(last_step_);
  return std::max(step, clock_.now());
}

}  // namespace atl::rounds
