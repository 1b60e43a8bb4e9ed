// Elastic pace: rounds come when the islands together have trained on enough, whoever did it, and
// nobody waits for them. The run's step is what was committed, in global batches. Round r is of
// fragment r mod P; at the end of the run, and at a stop, P rounds follow one another at once, so
// that what was learned is in all fragments. The run's last P steps are those of its last P rounds.
#include <fmt/format.h>

#include <algorithm>

#include "atoll/swarm/coordinator.h"

namespace atl::swarm {
namespace {

constexpr int64_t kReportsPerRound = 8;
constexpr double kDelayGain = 1.0 / 4;  // Of a Begin's smoothed delay; rises at once.
constexpr double kGraceInDelays = 3;
constexpr Duration kLeastGrace = std::chrono::milliseconds(500);
/// Who is cut off, or without a coordinator, trains on with the rows that it has: for so long, but
/// not for so many periods that what it learns alone leads it far from the others.
constexpr Duration kRowsAhead = std::chrono::seconds(10);
constexpr int64_t kMostPeriodsAhead = 4;
constexpr Duration kSpeedInterval = std::chrono::seconds(1);

}  // namespace

int64_t Coordinator::report_every() const {
  if (!is_elastic()) return 0;
  return std::max<int64_t>(1, options_.round_units / book_.num_replicas() / kReportsPerRound);
}

void Coordinator::call_round() {
  if (!is_elastic() || due_ || finished_ || !rounds_.all().empty()) return;
  if (roster_.num_live() < least_for_round()) return;
  const int64_t consumed = book_.leases().num_consumed();
  const int64_t missing = options_.steps * book_.num_replicas() - consumed;
  int64_t trained = 0;
  for (const auto& [number, seat] : roster_.seats()) {
    // What was trained on before the last call, and is open yet, has missed its round.
    const int64_t open = book_.leases().num_open(number, seat.num_trained());
    if (!seat.is_live()) continue;
    trained += std::min(open, seat.num_trained() - speeds_[number].num_trained_at_call);
  }
  int64_t needed = options_.round_units;
  if (options_.steps > 0) needed = is_ending() ? missing : std::min(needed, missing);
  if (stop_requested_) needed = 0;
  if (is_at_end() || trained < needed) return;
  call();
}

bool Coordinator::is_ending() const {
  return options_.steps > 0 && book_.last_step() >= options_.steps - options_.num_fragments;
}

Due Coordinator::next_due() const {
  // Rounds keep counting where a run begins again.
  const int64_t before = book_.start_step() * book_.num_replicas() / options_.round_units;
  const int64_t round = std::max(book_.last_round() + 1, before);
  return {.header = header(round),
          .fragment = static_cast<int32_t>(round % options_.num_fragments),
          .base = book_.last_round(),
          .step = book_.last_step()};
}

/// Elastic: each fragment is in one more round, which nobody has begun yet.
void Coordinator::note_stop() {
  stop_requested_ = true;
  stop_index_ = book_.num_commits();
  if (!is_elastic()) return;
  int64_t first = (due_ ? *due_ : next_due()).header.round;
  if (const Round* open = rounds_.find(first); open != nullptr && !open->begun().empty()) {
    first += 1;
  }
  stop_round_ = first + options_.num_fragments - 1;
}

bool Coordinator::stops_with(const Committed& committed) const {
  if (!stop_requested_) return false;
  return is_elastic() ? committed.held.round >= stop_round_ : committed.index >= stop_index_;
}

void Coordinator::call() {
  due_ = next_due();
  called_ = now_;
  for (const auto& [number, seat] : roster_.seats()) {
    speeds_[number].num_trained_at_call = seat.num_trained();
    say_due(seat);
  }
}

/// To who takes part; said again, it is not heard twice.
void Coordinator::say_due(const Seat& seat) {
  if (due_ && seat.is_live()) send_to(seat, *due_);
}

std::string Coordinator::objection_to(const Begin& begin) const {
  if (!is_elastic()) return {};
  const Due due = due_ ? *due_ : next_due();
  const bool fits = begin.header.round == due.header.round && begin.fragment == due.fragment &&
                    begin.step == due.step;
  if (fits) return {};
  return fmt::format("began round {} of fragment {} at step {}, where round {} at step {} is due",
                     begin.header.round, begin.fragment, begin.step, due.header.round, due.step);
}

void Coordinator::note_begin(int32_t number) {
  if (!due_) return call();  // By the coordinator that was here before.
  const double delay = seconds(now_ - called_);
  double& smoothed = speeds_[number].begin_delay;
  smoothed = delay > smoothed ? delay : smoothed + kDelayGain * (delay - smoothed);
}

Time Coordinator::grace_ends(const std::vector<int32_t>& awaited) const {
  double longest = 0;
  for (const int32_t member : awaited) {
    const auto found = speeds_.find(member);
    const double delay = found == speeds_.end() ? -1 : found->second.begin_delay;
    longest = std::max(longest, delay < 0 ? seconds(options_.silence_timeout) : delay);
  }
  return called_ + std::clamp(duration_of(kGraceInDelays * longest),
                              std::min(kLeastGrace, options_.silence_timeout),
                              options_.silence_timeout);
}

void Coordinator::measure_speed(int32_t number) {
  Speed& speed = speeds_[number];
  const int64_t num_trained = roster_.at(number).num_trained();
  const Duration took = now_ - speed.measured;
  if (!is_elastic() || took < kSpeedInterval) return;
  const auto trained = static_cast<double>(num_trained - speed.num_trained_then);
  // Beyond that the interval had a pause in it.
  if (speed.measured != Time{} && took < kRowsAhead) {
    const int64_t period = options_.num_fragments * options_.round_units / book_.num_replicas();
    const int64_t most = kMostPeriodsAhead * period;
    speed.rows_ahead =
        std::min(static_cast<int64_t>(trained * seconds(kRowsAhead) / seconds(took)), most);
  }
  speed.measured = now_;
  speed.num_trained_then = num_trained;
}

int64_t Coordinator::step_after(const Round& round) const {
  int64_t consumed = book_.leases().num_consumed();
  for (const int32_t member : round.ways().members) {
    const Begin& begin = round.begun().at(member);
    if (begin.weight > 0) consumed += book_.leases().num_open(member, begin.num_trained);
  }
  // No two commits have one step: a checkpoint's step says which commits are in it.
  const int64_t next = book_.last_step() + 1;
  const int64_t step = std::max(consumed / book_.num_replicas(), next);
  if (options_.steps == 0) return step;
  const int64_t before_end = options_.steps - options_.num_fragments;
  const bool has_all = consumed >= options_.steps * book_.num_replicas();
  if (has_all || is_ending()) return std::clamp(next, before_end + 1, options_.steps);
  return std::min(step, before_end);
}

}  // namespace atl::swarm
