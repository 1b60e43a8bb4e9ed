#include "atoll/coordinator/gathering.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/coordinator/events.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

Gathering::Decision Gathering::decide(const Book& book, const Guests& guests, const Roster& roster,
                                      int64_t least, Time now) {
  const int64_t num_ready = guests.num_ready();
  if (!book.has_begun()) {
    if (num_ready >= options_.replicas) return {.begins = true};
    return {.news = IslandsGathering{.ready = num_ready, .wanted = options_.replicas}};
  }
  const std::vector<int32_t> behind = roster.in(Seat::State::kBehind);
  if (roster.num_live() > 0 || (num_ready == 0 && behind.empty())) {
    until_.reset();
    return {};
  }
  const bool all_here =
      num_ready >= options_.replicas && behind.empty() && !may_others_come(book, guests, roster);
  const auto beginning = find_beginning(book, guests, least);
  const bool is_worth_waiting = !beginning || beginning->step < oldest_beginning(book);
  if (!all_here || (beginning && beginning->step > 0 && is_worth_waiting)) {
    const Time later = now + 2 * options_.return_grace;
    if (!until_) until_ = later;
    if (now < *until_) return {};
    if (!behind.empty()) {
      until_ = later;
      return {.removed = behind};
    }
    if (num_ready < options_.min_replicas) return {};
    // The others may still come, with what they have on disk: for that there is no deadline.
    if (is_worth_waiting) {
      const Event notice =
          StateAwaited{.step = book.last_step(), .newest = guests.newest_checkpoints()};
      until_ = later;
      if (std::exchange(notice_, notice.sentence) == notice.sentence) return {};
      return {.news = notice};
    }
  }
  until_.reset();
  awaited_.clear();
  return {.begins = true};
}

bool Gathering::may_others_come(const Book& book, const Guests& guests,
                                const Roster& roster) const {
  const auto is_missing = [&](const auto& entry) {
    const auto& [number, seat] = entry;
    const bool is_gone = seat.state() == Seat::State::kAway || seat.state() == Seat::State::kLeft;
    return is_gone && !guests.is_ready(book.members().at(number).name);
  };
  return std::ranges::any_of(roster.seats(), is_missing) ||
         !std::ranges::all_of(awaited_,
                              [&](const std::string& name) { return guests.is_ready(name); });
}

void Gathering::end() {
  until_.reset();
  notice_.clear();
}

std::optional<Gathering::Beginning> Gathering::find_beginning(const Book& book,
                                                              const Guests& guests,
                                                              int64_t least) const {
  const bool is_trained = std::ranges::any_of(
      guests.all(), [](const auto& entry) { return entry.second.holds_training(); });
  const auto counts = [&](const Guest& guest) {
    return guest.ready && (!is_trained || guest.holds_training());
  };
  std::vector<Checkpoints> held;
  for (const auto& [connection, guest] : guests.all()) {
    if (counts(guest)) held.push_back(guest.ready->checkpoints);
  }
  const auto find = [&]() -> std::optional<Checkpoint> {
    if (!is_trained) return newest_common_checkpoint(held);
    // What is further than islands wait for each other is of another run.
    const int64_t committed = book.has_begun() ? book.last_step() : INT64_MAX;
    const int64_t last = book.has_begun() ? committed + options_.most_ahead : INT64_MAX;
    if (options_.takes_newcomers) return newest_checkpoint(held, committed, last);
    if (book.has_begun()) {
      const auto found = most_held_checkpoint(held, oldest_beginning(book), last, least);
      if (found) return found;
    }
    return newest_common_checkpoint(held);
  };
  const auto found = find();
  if (!found) return std::nullopt;
  Beginning beginning{.step = found->first};
  for (const auto& [connection, guest] : guests.all()) {
    if (!counts(guest)) continue;
    const auto own = guest.ready->checkpoints.find(found->first);
    if (own != guest.ready->checkpoints.end() && own->second == found->second) {
      beginning.islands.emplace(guest.hello.name, connection);
    }
  }
  return beginning;
}

int64_t Gathering::oldest_beginning(const Book& book) const {
  const int64_t last = book.last_step();
  const int64_t oldest = options_.most_lost < last ? last - options_.most_lost : 0;
  // Whoever has had part in a commit holds it.
  const bool is_held = options_.keeps_rounds && last > 0;
  return std::max({oldest, book.start_step(), int64_t{is_held ? 1 : 0}});
}

}  // namespace atl::swarm
