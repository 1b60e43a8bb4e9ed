#pragma once
// A member whose process came to its end, and whose next process holds on disk all that it had: a
// checkpoint, the rounds behind it, and which rows it trained on. While the rounds wait for it
// anyway it can be the member that it was: it computes its steps again by itself, takes part in the
// open round, and the run goes on as if nothing had been. No commit is void, no row is dealt anew.
// Pure.
#include <cstdint>
#include <map>
#include <vector>

#include "atoll/coordinator/book.h"
#include "atoll/coordinator/guests.h"
#include "atoll/coordinator/roster.h"

namespace atl::swarm {

struct Comebacks {
  /// Those guests, and of each the index of the first commit whose result it lacks.
  std::map<Guests::Connection, uint64_t> lacking;
  /// The last commits, should nobody have their results: all were killed before those were on disk.
  /// All their members are here, or among those guests, and make them again. Of every other commit
  /// that a guest lacks somebody who is here, or one of them, has the result.
  std::vector<Committed> lost;
};
Comebacks able_to_come_back(const Guests& guests, const Book& book, const Roster& roster);

/// The newest round of the fragment that is on that island's disk; -1: none.
int64_t round_on_disk(const Former& former, int32_t fragment);

}  // namespace atl::swarm
