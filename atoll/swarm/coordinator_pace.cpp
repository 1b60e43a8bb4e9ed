// Elastic pace: rounds come when the islands together have trained on enough, whoever did it, and
// nobody waits for them. The run's step is what was committed, in global batches.
#include <algorithm>

#include "atoll/swarm/coordinator.h"

namespace atl::swarm {
namespace {

constexpr int64_t kReportsPerRound = 8;
constexpr double kDelayGain = 1.0 / 4;  // Of a Begin's smoothed delay; rises at once.
constexpr double kGraceInDelays = 3;
constexpr Duration kLeastGrace = std::chrono::milliseconds(500);

}  // namespace

int64_t Coordinator::report_every() const {
  if (!is_elastic()) return 0;
  return std::max<int64_t>(1, options_.round_units / book_.num_replicas() / kReportsPerRound);
}

void Coordinator::call_round() {
  if (!is_elastic() || due_ || finished_ || !rounds_.empty()) return;
  if (num_live() < (stop_requested_ ? 1 : least_replicas())) return;
  const int64_t consumed = book_.leases().num_consumed();
  const int64_t missing = options_.steps * book_.num_replicas() - consumed;
  const bool is_over = options_.steps > 0 && missing <= 0;
  int64_t trained = 0;
  for (const auto& [number, seat] : seats_) {
    if (is_live(seat)) trained += book_.leases().num_open(number, seat.num_trained);
  }
  int64_t needed = options_.round_units;
  if (options_.steps > 0) needed = std::min(needed, missing);
  if (stop_requested_) needed = 0;
  if (is_over || trained < needed) return;
  // Rounds keep counting where a run begins again.
  const int64_t before = book_.start_step() * book_.num_replicas() / options_.round_units;
  call(std::max(book_.last_round() + 1, before), /*fragment=*/0);
}

/// The same in every term that calls it.
void Coordinator::call(int64_t round, int32_t fragment) {
  due_ = {.header = header(round),
          .fragment = fragment,
          .base = book_.last_round(),
          .step = book_.last_step()};
  rounds_[round].called = now_;
  highest_begun_ = std::max(highest_begun_, round);
  for (const auto& [number, seat] : seats_) say_due(seat);
}

/// To who takes part; said again, it is not heard twice.
void Coordinator::say_due(const Seat& seat) {
  if (due_ && is_live(seat)) send_to(seat, *due_);
}

void Coordinator::note_begin(int32_t number, const Begin& begin) {
  // It was called by the coordinator that was here before.
  if (!due_) {
    return call(begin.header.round, begin.fragment);
  }
  const double delay = seconds(now_ - rounds_.at(begin.header.round).called);
  double& smoothed = seats_.at(number).begin_delay;
  smoothed = delay > smoothed ? delay : smoothed + kDelayGain * (delay - smoothed);
}

Time Coordinator::grace_ends(const Round& round, const std::vector<int32_t>& awaited) const {
  double longest = 0;
  for (const int32_t member : awaited) {
    const double delay = seats_.at(member).begin_delay;
    longest = std::max(longest, delay < 0 ? seconds(options_.silence_timeout) : delay);
  }
  const auto wanted =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(kGraceInDelays * longest));
  return round.called + std::clamp(wanted, std::min(kLeastGrace, options_.silence_timeout),
                                   options_.silence_timeout);
}

int64_t Coordinator::step_after(const Round& round) const {
  int64_t consumed = book_.leases().num_consumed();
  for (const int32_t member : round.members) {
    const Begin& begin = round.begun.at(member);
    if (begin.weight > 0) consumed += book_.leases().num_open(member, begin.num_trained);
  }
  const int64_t step = consumed / book_.num_replicas();
  return options_.steps > 0 ? std::min(step, options_.steps) : step;
}

}  // namespace atl::swarm
