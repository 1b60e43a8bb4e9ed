// Members that come back in new processes, as what they were (comeback.h).
#include <utility>

#include "atoll/coordinator/comeback.h"
#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/events.h"

namespace atl::swarm {

Comebacks Coordinator::may_return() const {
  if (!options_.keeps_rounds || !pace_->can_be_computed_again()) return {};
  return able_to_come_back(guests_, book_, roster_);
}

bool Coordinator::take_back_guests() {
  const auto [able, lost] = may_return();
  if (able.empty()) return false;
  for (const Committed& before : rounds_.make_again(lost)) {
    if (rounds_.lost(before.held.round) == nullptr) tell_found(before);
  }
  std::map<Connection, Former> formers;
  for (const auto& [connection, lacking] : able) {
    formers[connection] = guests_.at(connection).ready->former;
    seat_again(connection, lacking);
  }
  // Each is told of all: the others' addresses are new too.
  for (const auto& [connection, lacking] : able) {
    start_again(connection, formers.at(connection), lacking);
  }
  gathering_.end();
  announce_view();
  note_membership();
  advance_all();
  return true;
}

void Coordinator::seat_again(Connection connection, uint64_t first_lacking) {
  const int32_t number = guests_.at(connection).ready->former.number;
  const Hello hello = guests_.take(connection);
  rounds_.forget(number);  // It begins them again.
  links_.forget(number);   // They were another process's.
  meetings_.forget(number);
  record(Admitted{{number, hello.name, hello.address}});
  roster_.connect(number, connection);
  roster_.at(number).come_back_whole(first_lacking, now_);
  call(number);
  log(IslandComputesAgain{hello.name});
}

void Coordinator::start_again(Connection connection, const Former& former, uint64_t first_lacking) {
  Start start = start_of(former.number, /*joins=*/false);
  start.view += 1;
  start.returns = true;
  start.num_commits = first_lacking;
  start.units = book_.leases().behind(former.number, former.num_leased);
  for (const auto& [fragment, held] : book_.held()) {
    if (held.round <= round_on_disk(former, fragment)) start.held.push_back(held);
  }
  send(connection, std::move(start));
  for (const Committed& committed : book_.history()) {
    if (rounds_.lost(committed.held.round) != nullptr) continue;  // Said when they have made it.
    if (committed.index >= first_lacking) send(connection, message_of(committed));
  }
}

void Coordinator::tell_found(const Committed& committed) {
  for (const auto& [number, seat] : roster_.seats()) {
    if (!seat.has(committed.index)) send_to(seat, message_of(committed));
  }
  rounds_.settle(committed.held.round, committed.held.fragment);
}

void Coordinator::tell_again(const Round& round, Committed committed, const Digest& digest) {
  // A copy: who is removed is in no round any more.
  const std::vector<int32_t> members(round.members().begin(), round.members().end());
  if (digest != committed.held.digest || members != committed.members) {
    // Another processor's sums: the run begins again before it.
    for (const int32_t member : members) {
      if (!roster_.contains(member)) continue;
      remove(member, "a round whose result all had lost came out otherwise: join again");
    }
    return;
  }
  committed.attempt = round.attempt();
  links_.carried(round.members());
  for (const auto& [member, prepared] : round.prepared()) {
    roster_.at(member).note_commit(committed.index);
  }
  for (const int32_t member : members) send_to(roster_.at(member), message_of(committed));
  log(RoundMadeAgain{.round = committed.held.round, .step = committed.held.step});
  rounds_.settle(committed.held.round, committed.held.fragment);
  advance_all();  // Those behind it have waited.
}

}  // namespace atl::swarm
