#include "atoll/coordinator/elastic.h"

#include <fmt/format.h>

#include <algorithm>

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
constexpr int64_t kLeadParts = 4;  // Of a long lead of rows, one at a time is granted.

}  // namespace

void Elastic::begin(const Book& book) {
  due_.reset();
  islands_.clear();
  if (stop_round_) stop(book, {});
}

void Elastic::stop(const Book& book, const OpenRounds& rounds) {
  int64_t first = (due_ ? *due_ : next_due(book)).header.round;
  const auto open = rounds.all().find(first);
  if (open != rounds.all().end() && !open->second.begun().empty()) first += 1;
  stop_round_ = first + options_.num_fragments - 1;
}

bool Elastic::stops_with(const Committed& committed) const {
  return stop_round_ && committed.held.round >= *stop_round_;
}

bool Elastic::call(const Book& book, const Roster& roster, Time now) {
  if (due_) return false;
  const int64_t missing = options_.steps * book.num_replicas() - book.leases().num_consumed();
  int64_t trained = 0;
  for (const auto& [number, seat] : roster.seats()) {
    if (!seat.is_live()) continue;
    // What was trained on before the last call, and is open yet, has missed its round.
    const auto island = islands_.find(number);
    const int64_t at_call = island == islands_.end() ? 0 : island->second.num_trained_at_call;
    trained +=
        std::min(book.leases().num_open(number, seat.num_trained()), seat.num_trained() - at_call);
  }
  int64_t needed = options_.round_units;
  if (options_.steps > 0) needed = is_ending(book) ? missing : std::min(needed, missing);
  if (is_stopping()) needed = 0;
  const bool is_at_end = options_.steps > 0 && book.last_step() >= options_.steps;
  if (is_at_end || trained < needed) return false;
  make_due(book, roster, now);
  return true;
}

bool Elastic::is_ending(const Book& book) const {
  return options_.steps > 0 && book.last_step() >= options_.steps - options_.num_fragments;
}

Due Elastic::next_due(const Book& book) const {
  // Rounds keep counting where a run begins again.
  const int64_t before = book.start_step() * book.num_replicas() / options_.round_units;
  const int64_t round = std::max(book.last_round() + 1, before);
  return {.header = {.run = book.run(), .term = book.term(), .round = round},
          .fragment = static_cast<int32_t>(round % options_.num_fragments),
          .base = book.last_round(),
          .step = book.last_step()};
}

void Elastic::make_due(const Book& book, const Roster& roster, Time now) {
  due_ = next_due(book);
  called_ = now;
  for (const auto& [number, seat] : roster.seats()) {
    islands_[number].num_trained_at_call = seat.num_trained();
  }
}

std::string Elastic::objection_to(const Begin& begin, const Book& book) const {
  const Due due = due_ ? *due_ : next_due(book);
  const bool fits = begin.header.round == due.header.round && begin.fragment == due.fragment &&
                    begin.step == due.step;
  if (fits) return {};
  return fmt::format("began round {} of fragment {} at step {}, where round {} at step {} is due",
                     begin.header.round, begin.fragment, begin.step, due.header.round, due.step);
}

bool Elastic::note_begin(int32_t member, const Book& book, const Roster& roster, Time now) {
  if (!due_) {
    make_due(book, roster, now);
    return true;
  }
  const double delay_s = seconds(now - called_);
  double& smoothed = islands_[member].begin_delay_s;
  smoothed = delay_s > smoothed ? delay_s : smoothed + kDelayGain * (delay_s - smoothed);
  return false;
}

void Elastic::settle(int64_t round) {
  if (due_ && due_->header.round <= round) due_.reset();
}

int64_t Elastic::step_after(const Round& round, const Book& book) const {
  int64_t consumed = book.leases().num_consumed();
  for (const int32_t member : round.members()) {
    const Begin& begin = round.begun().at(member);
    if (begin.weight > 0) consumed += book.leases().num_open(member, begin.num_trained);
  }
  const int64_t next = book.last_step() + 1;
  const int64_t step = std::max(consumed / book.num_replicas(), next);
  if (options_.steps == 0) return step;
  const int64_t before_end = options_.steps - options_.num_fragments;
  const bool has_all = consumed >= options_.steps * book.num_replicas();
  if (has_all || is_ending(book)) return std::clamp(next, before_end + 1, options_.steps);
  return std::min(step, before_end);
}

Time Elastic::grace_ends(const std::vector<int32_t>& awaited) const {
  double longest = 0;
  for (const int32_t member : awaited) {
    const auto island = islands_.find(member);
    const double delay = island == islands_.end() ? -1 : island->second.begin_delay_s;
    longest = std::max(longest, delay < 0 ? seconds(options_.silence_timeout) : delay);
  }
  return called_ + std::clamp(duration_of(kGraceInDelays * longest),
                              std::min(kLeastGrace, options_.silence_timeout),
                              options_.silence_timeout);
}

int64_t Elastic::report_every(const Book& book) const {
  return std::max<int64_t>(1, options_.round_units / book.num_replicas() / kReportsPerRound);
}

void Elastic::note_trained(int32_t member, const Seat& seat, const Book& book, Time now) {
  Island& island = islands_[member];
  const Duration took = now - island.measured;
  if (took < kSpeedInterval) return;
  const auto trained = static_cast<double>(seat.num_trained() - island.num_trained_then);
  // Beyond that the interval had a pause in it.
  if (island.measured != Time{} && took < kRowsAhead) {
    const int64_t period = options_.num_fragments * options_.round_units / book.num_replicas();
    const int64_t most = kMostPeriodsAhead * period;
    island.rows_ahead =
        std::min(static_cast<int64_t>(trained * seconds(kRowsAhead) / seconds(took)), most);
  }
  island.measured = now;
  island.num_trained_then = seat.num_trained();
}

int64_t Elastic::rows_ahead(int32_t member) const {
  const auto island = islands_.find(member);
  return island == islands_.end() ? 0 : island->second.rows_ahead;
}

std::vector<Granted> Elastic::grants(const Book& book, const Roster& roster,
                                     bool /*rounds_wait*/) const {
  std::vector<Granted> grants;
  for (const auto& [number, seat] : roster.seats()) {
    if (!seat.is_here()) continue;
    const int64_t ahead = rows_ahead(number);
    if (units_left(number, seat, book) >= std::max(options_.steps_ahead, ahead)) continue;
    // What is granted is nobody else's: no more at a time than is soon used.
    grants.push_back({{number}, std::max(options_.steps_ahead, ahead / kLeadParts)});
  }
  return grants;
}

}  // namespace atl::swarm
