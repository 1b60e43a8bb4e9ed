#include "atoll/rounds/lockstep.h"

#include <algorithm>

#include "atoll/method/method.h"

namespace atl::rounds {

Lockstep::Lockstep(const PaceOptions& options, const method::SyncOptions& sync, Standing& standing,
                   collective::Decisions& decisions)
    : Pace(standing, decisions),
      last_step_(options.last_step),
      keep_every_(options.keep_every),
      num_fragments_(method::num_fragments(sync)),
      delay_(method::delay(sync)) {
  if (method::method_of(sync).is_for_one) return;
  schedule_.emplace(method::period(sync), num_fragments_, last_step_);
}

bool Lockstep::syncs_after(int64_t step, bool lands) const {
  if (!schedule_) return true;
  if (!lands) return false;
  return is_last(step) || (delay_ == 0 && num_fragments_ == 1 && schedule_->due(step));
}

Result<std::optional<Task>> Lockstep::next(int64_t step) {
  const auto& open = standing_.open();
  const bool takes = !open.empty() && is_due(open.begin()->second, step);
  if (takes && open.begin()->second.step < step) return Take{open.begin()->first};
  if (auto own = to_begin(step)) return Begin{*own};
  if (takes) return Take{open.begin()->first};
  return std::nullopt;
}

std::optional<OwnRound> Lockstep::to_begin(int64_t step) const {
  if (!schedule_ || (standing_.has_counted() && !is_last(step))) return std::nullopt;
  const auto due = schedule_->due(step);
  for (int64_t fragment = 0; fragment < num_fragments_; ++fragment) {
    if (fragment != due && !is_last(step)) continue;
    const int64_t round = schedule_->round(fragment, step);
    if (standing_.is_applied(fragment, round) || standing_.is_begun(fragment, round)) continue;
    OwnRound own = sent(fragment, step);
    own.num_steps = standing_.steps_since(fragment);
    return own;
  }
  return std::nullopt;
}

OwnRound Lockstep::sent(int64_t fragment, int64_t step) const {
  return {.round = schedule_->round(fragment, step),
          .fragment = static_cast<int32_t>(fragment),
          .step = step,
          .number = schedule_->number(fragment, step)};
}

std::optional<Task> Lockstep::next_missed() {
  const collective::Commit* const commit = missed();
  if (commit == nullptr) return std::nullopt;
  for (const auto& [round, own] : standing_.open()) {
    if (own.fragment == commit->fragment && round < commit->round) return Take{round};
  }
  newest_step_ = commit->step;
  return take_missed();
}

int64_t Lockstep::number(int64_t fragment, int64_t /*round*/, int64_t step) const {
  return schedule_->number(fragment, step);
}

CaughtUp Lockstep::caught_up(int64_t step) {
  int64_t now = std::max(step, std::min(newest_step_, last_step_ - 1));
  if (const auto position = decisions_.take_position()) {
    now = std::max(now, std::min(*position, next_due(now) - 1));
  }
  return {.step = now, .left_to_others = now - step};
}

int64_t Lockstep::next_due(int64_t step) const {
  int64_t next = step + 1;
  while (next < last_step_ && schedule_ && !schedule_->due(next)) ++next;
  return std::min(next, last_step_);
}

std::vector<OwnRound> Lockstep::resumed(int64_t step) {
  std::vector<OwnRound> rounds;
  if (is_last(step) || !schedule_) return rounds;
  for (int64_t fragment = 0; fragment < num_fragments_; ++fragment) {
    standing_.set_steps_since(fragment, step - schedule_->last_sent(fragment, step));
  }
  for (int64_t then = std::max<int64_t>(1, step - delay_ + 1); then <= step; ++then) {
    const auto fragment = schedule_->due(then);
    if (!fragment) continue;
    OwnRound own = sent(*fragment, then);
    own.num_steps = then - schedule_->last_sent(*fragment, then - 1);
    standing_.set_steps_since(*fragment, standing_.steps_since(*fragment) + own.num_steps);
    rounds.push_back(own);
  }
  return rounds;
}

}  // namespace atl::rounds
