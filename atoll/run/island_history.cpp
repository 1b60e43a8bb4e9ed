#include "atoll/run/island_history.h"

#include <algorithm>
#include <utility>

namespace atl::run {
namespace {

constexpr int kMostInVain = 3;

/// Adds what one process did to what others did; shares and rates by the time that each trained.
void add(Summary& sum, const Summary& process) {
  const double time = process.seconds.training();
  const double all = sum.seconds.training() + time;
  const auto mean = [&](double& share, double other) {
    if (all > 0) share += (other - share) * time / all;
  };
  mean(sum.stall_share, process.stall_share);
  mean(sum.blocked_share, process.blocked_share);
  mean(sum.tokens_per_s, process.tokens_per_s);
  sum.seconds += process.seconds;
  sum.bytes_sent += process.bytes_sent;
  sum.bytes_received += process.bytes_received;
  sum.steps_now += process.steps_now;
  sum.abstained_rounds += process.abstained_rounds;
}

Summary summary_of(const Progress& progress) {
  const SecondsSpent& seconds = progress.seconds;
  return {.tokens_per_s = progress.tokens_per_s,
          .bytes_sent = progress.bytes_sent,
          .bytes_received = progress.bytes_received,
          .stall_share = progress.stall_share,
          .blocked_share = seconds.training() > 0 ? seconds.waiting / seconds.training() : 0,
          .abstained_rounds = progress.abstained_rounds,
          .steps_now = progress.trained,
          .seconds = seconds};
}

}  // namespace

std::optional<Duration> IslandHistory::heard(const Progress& progress, Time now) {
  // The process may have joined again by itself, and counts from nothing then.
  if (has_trained_ && progress.member != newest_.member) add(before_, summary_of(newest_));
  newest_ = progress;
  has_trained_ = true;
  num_in_vain_ = 0;
  if (!lost_at_) return std::nullopt;
  const SecondsSpent& spent = progress.seconds;
  const Duration there = duration_of(spent.training() + spent.validation + spent.checkpoints);
  const Duration away = std::max(Duration{}, now - there - *std::exchange(lost_at_, {}));
  away_ += away;
  return away;
}

void IslandHistory::lost(Time now) {
  if (has_trained_) {
    add(before_, summary_of(newest_));
  } else {
    num_in_vain_ += 1;
  }
  has_trained_ = false;
  if (!lost_at_) lost_at_ = now;
}

bool IslandHistory::may_return() const { return num_in_vain_ < kMostInVain; }

Summary IslandHistory::whole(Summary last) const {
  Summary sum = before_;
  add(sum, last);
  last.tokens_per_s = sum.tokens_per_s;
  last.bytes_sent = sum.bytes_sent;
  last.bytes_received = sum.bytes_received;
  last.stall_share = sum.stall_share;
  last.blocked_share = sum.blocked_share;
  last.abstained_rounds = sum.abstained_rounds;
  last.steps_now = sum.steps_now;
  last.seconds = sum.seconds;
  last.away_seconds = seconds(away_);
  return last;
}

}  // namespace atl::run
