#include "atoll/coordinator/comeback.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace atl::swarm {
namespace {

/// Who lacks more than rounds that were on their way has lost what it had.
constexpr int64_t kMostLacking = 64;

/// Whether the guest is that member, by what its disk says, and nobody else has its place.
bool was_member(const Guest& guest, const Book& book, const Roster& roster) {
  const Former& former = guest.ready->former;
  if (!roster.contains(former.number)) return false;
  if (roster.at(former.number).state() != Seat::State::kAway) return false;
  if (book.members().at(former.number).name != guest.hello.name) return false;
  return former.term >= book.first_term() && former.term <= book.term();
}

/// Whether it may have been leased so many units, and not less than commits have counted.
bool knows_its_rows(const Former& former, const Book& book) {
  const auto leases = book.leases().members().find(former.number);
  const bool has_leases = leases != book.leases().members().end();
  const int64_t consumed = has_leases ? leases->second.num_consumed : 0;
  return former.num_leased >= consumed &&
         book.leases().is_possible(former.number, former.num_leased);
}

std::optional<uint64_t> first_lacking(const Guest& guest, const Book& book, const Roster& roster) {
  if (!guest.ready || !was_member(guest, book, roster)) return std::nullopt;
  const Former& former = guest.ready->former;
  if (!knows_its_rows(former, book)) return std::nullopt;
  uint64_t first = book.num_commits();
  int64_t num_lacking = 0;
  for (const Committed& committed : book.history()) {
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

}  // namespace

int64_t round_on_disk(const Former& former, int32_t fragment) {
  const auto index = static_cast<size_t>(fragment);
  return index < former.rounds.size() ? former.rounds[index] : -1;
}

Comebacks able_to_come_back(const Guests& guests, const Book& book, const Roster& roster) {
  Comebacks out;
  auto& able = out.lacking;
  uint64_t first = book.num_commits();
  for (const auto& [connection, guest] : guests.all()) {
    const auto lacking = first_lacking(guest, book, roster);
    if (!lacking) continue;
    able.emplace(connection, *lacking);
    first = std::min(first, *lacking);
  }
  const auto is_held = [&](const Committed& committed) {
    const auto has_it = [&](const auto& entry) {
      return entry.second.state() == Seat::State::kActive && entry.second.has(committed.index);
    };
    const auto has_it_on_disk = [&](const auto& entry) {
      const Former& former = guests.at(entry.first).ready->former;
      return round_on_disk(former, committed.held.fragment) >= committed.held.round;
    };
    return std::ranges::any_of(roster.seats(), has_it) || std::ranges::any_of(able, has_it_on_disk);
  };
  for (const Committed& committed : book.history()) {
    if (committed.index >= first && !is_held(committed)) out.lost.push_back(committed);
  }
  const auto is_here = [&](int32_t member) {
    const bool is_active =
        roster.contains(member) && roster.at(member).state() == Seat::State::kActive;
    return is_active || std::ranges::any_of(able, [&](const auto& entry) {
             return guests.at(entry.first).ready->former.number == member;
           });
  };
  const bool are_last = out.lost.empty() || book.num_commits() - out.lost.front().index ==
                                                static_cast<uint64_t>(out.lost.size());
  const bool can_make_them = std::ranges::all_of(out.lost, [&](const Committed& committed) {
    return committed.held.fragment != kNoFragment &&
           std::ranges::all_of(committed.members, is_here);
  });
  if (are_last && can_make_them) return out;
  // Lost with all who had it: the run begins again before it.
  for (const Committed& committed : std::exchange(out.lost, {})) {
    std::erase_if(able, [&](const auto& entry) { return entry.second <= committed.index; });
  }
  return out;
}

}  // namespace atl::swarm
