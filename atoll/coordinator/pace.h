#pragma once
// When rounds are due, and what follows from it: for the coordinator, a pace is one of two objects
// that answer the same questions. In `Lockstep` a round is due at one step of all islands, which
// train the same rows in turn. In `Elastic` the coordinator calls rounds when the islands together
// have trained on enough, whoever did it, and nobody waits for who is late. Pure: they are told
// what happens, and are asked.
//
// Not thread-safe; the coordinator owns one for the run, whatever it begins again from.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/coordinator/book.h"
#include "atoll/coordinator/coordinator_options.h"
#include "atoll/coordinator/roster.h"
#include "atoll/coordinator/round.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

class Pace {
 public:
  virtual ~Pace() = default;

  /// The run has begun, or has begun anew: rounds are counted anew, also those until a stop.
  virtual void begin(const Book& book) = 0;
  /// All are to stop together, at a commit that has not been decided.
  virtual void stop(const Book& book, const OpenRounds& rounds) = 0;
  virtual bool is_stopping() const = 0;
  /// Whether all end with that commit.
  virtual bool stops_with(const Committed& committed) const = 0;

  /// No round is open: calls the next one, if enough was trained on. True: due() is new.
  virtual bool call(const Book& book, const Roster& roster, Time now) = 0;
  /// The round that was called and is not decided.
  virtual std::optional<Due> due() const = 0;
  /// What is wrong with a Begin; empty if nothing.
  virtual std::string objection_to(const Begin& begin, const Book& book) const = 0;
  /// A member has begun that round for the first time. True: due() is new, since an earlier
  /// coordinator had called it.
  virtual bool note_begin(int32_t member, const Book& book, const Roster& roster, Time now) = 0;
  /// That round was committed, or is passed.
  virtual void settle(int64_t round) = 0;
  /// Where the run stands when that round is committed.
  virtual int64_t step_after(const Round& round, const Book& book) const = 0;

  /// When a round goes on without those `awaited` who have not begun it.
  virtual Time grace_ends(const std::vector<int32_t>& awaited) const = 0;
  /// Rounds go on as time passes, though nothing else happens.
  virtual bool has_graces() const = 0;
  /// Since when a member that has not begun the round holds it up.
  virtual Time idle_since(const Seat& seat, const Round& round) const = 0;

  /// Whether a member's steps follow from their numbers: it can then compute them again.
  virtual bool can_be_computed_again() const = 0;
  /// A member that was behind has caught up: from which round on it is waited for, and the step
  /// from which it goes on. Without a header.
  virtual Reinstated reinstated(const Seat& seat, const Book& book, const Roster& roster,
                                const OpenRounds& rounds) const = 0;
  virtual void forget(int32_t member) = 0;

  /// Units between two of a member's Heartbeats; 0: by time alone.
  virtual int64_t report_every(const Book& book) const = 0;
  /// A member's Heartbeat came, and its seat knows it.
  virtual void note_trained(int32_t member, const Seat& seat, const Book& book, Time now) = 0;
  /// What keeps everybody in rows, in this order. `rounds_wait`: for those who are away.
  virtual std::vector<Granted> grants(const Book& book, const Roster& roster,
                                      bool rounds_wait) const = 0;
};

std::unique_ptr<Pace> make_pace(const CoordinatorOptions& options);

/// Units that the member has been granted and has not trained on yet.
int64_t units_left(int32_t number, const Seat& seat, const Book& book);

}  // namespace atl::swarm
