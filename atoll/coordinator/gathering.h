#pragma once
// How a run begins, or begins again where nobody holds its state any more: when enough have come,
// from which checkpoint, with whom; and how long those who might hold more are waited for. Pure.
//
// A run begins with `replicas` islands. It begins again with those who are there when the others
// had their time to come back. Nobody is taken back to what another held long ago, or to the
// beginning by who holds nothing: those join later. Where the method takes no newcomers, as many as
// can begin, at what they have in common, unless that is too old.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/coordinator/book.h"
#include "atoll/coordinator/coordinator_options.h"
#include "atoll/coordinator/guests.h"
#include "atoll/coordinator/roster.h"

namespace atl::swarm {

class Gathering {
 public:
  explicit Gathering(CoordinatorOptions options) : options_(std::move(options)) {}

  /// What is to be done now, in this order.
  struct Decision {
    std::vector<int32_t> removed;  // Members who are behind: those who held the state are gone.
    std::optional<Event> news{};
    bool begins = false;  // The run, now.
  };
  /// `least`: with fewer islands rounds would wait.
  Decision decide(const Book& book, const Guests& guests, const Roster& roster, int64_t least,
                  Time now);
  /// Its patience is over: decide again.
  bool is_due(Time now) const { return until_ && now >= *until_; }
  /// An island that was told to join again, and will: nobody begins without it, for a while.
  void await(const std::string& name) { awaited_.insert(name); }
  /// Somebody holds the run's state: there is nothing to wait for.
  void end();
  /// Why the run cannot begin again with who is here; empty: it is not so.
  const std::string& notice() const { return notice_; }

  /// The checkpoint that the run begins with, and who holds it: those begin it.
  struct Beginning {
    int64_t step = 0;
    std::map<std::string, Guests::Connection> islands;  // By name.
  };
  std::optional<Beginning> find_beginning(const Book& book, const Guests& guests,
                                          int64_t least) const;

 private:
  /// The step of the oldest checkpoint that the run may go on from: somebody holds that at least.
  int64_t oldest_beginning(const Book& book) const;
  bool may_others_come(const Book& book, const Guests& guests, const Roster& roster) const;

  CoordinatorOptions options_;
  std::optional<Time> until_;      // When those who are ready begin without the others.
  std::set<std::string> awaited_;  // By name.
  std::string notice_;             // Said once.
};

}  // namespace atl::swarm
