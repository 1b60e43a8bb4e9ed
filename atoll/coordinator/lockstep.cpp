#include "atoll/coordinator/lockstep.h"

#include <algorithm>

namespace atl::swarm {

Lockstep::Lockstep(const CoordinatorOptions& options)
    : num_fragments_(options.num_fragments), steps_ahead_(options.steps_ahead) {}

void Lockstep::begin(const Book& book) {
  if (stop_index_) stop_index_ = book.num_commits();
}

void Lockstep::stop(const Book& book, const OpenRounds& /*rounds*/) {
  stop_index_ = book.num_commits();
}

bool Lockstep::stops_with(const Committed& committed) const {
  return stop_index_ && committed.index >= *stop_index_;
}

int64_t Lockstep::step_after(const Round& round, const Book& /*book*/) const {
  return round.begun().begin()->second.step;
}

Time Lockstep::idle_since(const Seat& seat, const Round& round) const {
  return std::max(seat.trained_at(), round.waits_since());
}

Reinstated Lockstep::reinstated(const Seat& seat, const Book& book, const Roster& roster,
                                const OpenRounds& rounds) const {
  if (seat.is_new() && roster.num_live() > 0) {
    return {.first_round = std::max(rounds.highest(), book.last_round()) + 1 + num_fragments_};
  }
  int64_t step = 0;
  for (const auto& [number, other] : roster.seats()) {
    if (other.is_live()) step = std::max(step, other.progress().step);
  }
  return {.step = step};
}

/// Those who are level get rows together, dealt in turn, and with them those for whom rounds wait:
/// who comes back as it was has its rows.
std::vector<Granted> Lockstep::grants(const Book& book, const Roster& roster,
                                      bool rounds_wait) const {
  std::vector<Granted> grants;
  Granted level{.count = steps_ahead_};
  bool any_level_is_short = false;
  for (const auto& [number, seat] : roster.seats()) {
    const bool is_short = units_left(number, seat, book) < steps_ahead_;
    if (seat.is_live()) {
      level.numbers.push_back(number);
      any_level_is_short = any_level_is_short || is_short;
    } else if (rounds_wait && seat.state() == Seat::State::kAway) {
      level.numbers.push_back(number);
    } else if (seat.is_here() && is_short) {
      grants.push_back({{number}, steps_ahead_});
    }
  }
  if (any_level_is_short) grants.insert(grants.begin(), std::move(level));
  return grants;
}

}  // namespace atl::swarm
