// A member whose process came to its end, and whose next process holds on disk all that it had: a
// checkpoint, the rounds behind it, and which rows it trained on. While the rounds wait for it
// anyway it is the member that it was: it computes its steps again by itself, takes part in the
// open round, and the run goes on as if nothing had been. No commit is void, no row is dealt anew.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/swarm/coordinator.h"

namespace atl::swarm {
namespace {

/// Who lacks more than rounds that were on their way has lost what it had.
constexpr int64_t kMostLacking = 64;

/// The newest round of the fragment that is on that island's disk.
int64_t round_on_disk(const Former& former, int32_t fragment) {
  const auto index = static_cast<size_t>(fragment);
  return index < former.rounds.size() ? former.rounds[index] : -1;
}

}  // namespace

std::optional<uint64_t> Coordinator::first_lacking(const Guest& guest) const {
  if (!guest.ready || !options_.keeps_rounds || is_elastic()) return std::nullopt;
  const Former& former = guest.ready->former;
  const auto seat = seats_.find(former.number);
  if (seat == seats_.end() || seat->second.state != State::kAway) return std::nullopt;
  if (name(former.number) != guest.hello.name) return std::nullopt;
  if (former.term < book_.first_term() || former.term > book_.term()) return std::nullopt;
  const auto leases = book_.leases().members().find(former.number);
  const int64_t consumed =
      leases == book_.leases().members().end() ? 0 : leases->second.num_consumed;
  if (former.num_leased < consumed ||
      !book_.leases().is_possible(former.number, former.num_leased)) {
    return std::nullopt;
  }
  uint64_t first = book_.num_commits();
  int64_t num_lacking = 0;
  for (const Committed& committed : book_.history()) {
    const Held& held = committed.held;
    if (held.fragment == kNoFragment || held.round <= round_on_disk(former, held.fragment)) {
      continue;
    }
    const auto& members = committed.members;
    const bool is_in_it = std::ranges::find(members, former.number) != members.end();
    if (!is_in_it || ++num_lacking > kMostLacking) return std::nullopt;  // It went on without it.
    first = std::min(first, committed.index);
  }
  return first;
}

bool Coordinator::is_held(const Committed& committed,
                          const std::map<Connection, uint64_t>& able) const {
  const auto has_it = [&](const auto& entry) {
    const Seat& seat = entry.second;
    return seat.state == State::kActive && seat.caught_up > committed.index;
  };
  const auto has_it_on_disk = [&](const auto& entry) {
    const Former& former = guests_.at(entry.first).ready->former;
    return round_on_disk(former, committed.held.fragment) >= committed.held.round;
  };
  return std::ranges::any_of(seats_, has_it) || std::ranges::any_of(able, has_it_on_disk);
}

bool Coordinator::take_back_guests() {
  std::map<Connection, uint64_t> able;
  uint64_t first = book_.num_commits();
  for (const auto& [connection, guest] : guests_) {
    const auto lacking = first_lacking(guest);
    if (!lacking) continue;
    able.emplace(connection, *lacking);
    first = std::min(first, *lacking);
  }
  for (const Committed& committed : book_.history()) {
    if (committed.index < first || is_held(committed, able)) continue;
    // Lost with all who had it: the run begins again before it.
    std::erase_if(able, [&](const auto& entry) { return entry.second <= committed.index; });
  }
  for (const auto& [connection, lacking] : able) take_back(connection, lacking);
  if (able.empty()) return false;
  gather_until_.reset();
  gather_notice_.clear();
  announce_view();
  note_membership();
  advance_all();
  return true;
}

void Coordinator::take_back(Connection connection, uint64_t first_lacking) {
  const Guest guest = std::move(guests_.extract(connection).mapped());
  const Former& former = guest.ready->former;
  const int32_t number = former.number;
  forget_rounds_of(number);  // It begins them again.
  std::erase_if(no_links_, [&](const auto& pair) { return is_of(pair, number); });
  record(Admitted{{number, guest.hello.name, guest.hello.address}});
  numbers_[connection] = number;
  Seat& seat = seats_.at(number);
  const int64_t num_trained = seat.num_trained;
  seat = {.state = State::kActive,
          .connection = connection,
          .is_new = false,
          .caught_up = first_lacking,
          .num_trained = num_trained,
          .suspicion = {options_.suspicion(), now_},
          .heard = now_,
          .trained = now_,
          .left_out = seat.left_out};
  log(
      fmt::format("island '{}' is back with what it had: it computes the steps since its "
                  "checkpoint again",
                  guest.hello.name));
  Start start = start_of(number, /*joins=*/false);
  start.view += 1;
  start.returns = true;
  start.num_commits = first_lacking;
  start.units = book_.leases().behind(number, former.num_leased);
  for (const auto& [fragment, held] : book_.held()) {
    if (held.round <= round_on_disk(former, fragment)) start.held.push_back(held);
  }
  send(connection, std::move(start));
  for (const Committed& committed : book_.history()) {
    if (committed.index >= first_lacking) send(connection, message_of(committed));
  }
}

}  // namespace atl::swarm
