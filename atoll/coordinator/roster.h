#pragma once
// The seats of a run's members, by number, and which connection is whose. Pure.
//
// Invariants: a connection is of one member at most, and a member has one at most.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "atoll/coordinator/seat.h"

namespace atl::swarm {

class Roster {
 public:
  using Connection = Seat::Connection;
  using State = Seat::State;

  Roster(SuspicionOptions suspicion, Time now) : suspicion_(suspicion), last_moved_(now) {}

  /// A member that a journal names, and of which this process has not heard yet.
  void restore(int32_t number, State state, Time now);
  /// A new member.
  Seat& seat(int32_t number, Connection connection, Time now);
  void vacate(int32_t number);
  void clear();
  /// The member's from here on, in place of any other.
  void connect(int32_t number, Connection connection);
  /// The connection is gone: whose it was, if any member's.
  std::optional<int32_t> disconnect(Connection connection);

  bool empty() const { return seats_.empty(); }
  bool contains(int32_t number) const { return seats_.contains(number); }
  Seat& at(int32_t number) { return seats_.at(number); }
  const Seat& at(int32_t number) const { return seats_.at(number); }
  const std::map<int32_t, Seat>& seats() const { return seats_; }
  std::vector<int32_t> numbers() const;
  std::vector<int32_t> in(State state) const;
  int64_t num_in(State state) const;
  bool any_in(State state) const { return num_in(state) > 0; }
  std::set<int32_t> live() const;
  int64_t num_live() const;
  /// Live, and waited for in that round.
  std::vector<int32_t> expected(int64_t round) const;
  std::optional<int32_t> number_of(Connection connection) const;
  /// Rising.
  std::vector<Connection> connections() const;

  void report(int32_t number, const Heartbeat& heartbeat, Time now);
  /// When a member last said that it had moved something.
  Time last_moved() const { return last_moved_; }
  /// Nothing could be heard until now.
  void forgive(Time now);

 private:
  SuspicionOptions suspicion_;
  std::map<int32_t, Seat> seats_;
  std::map<Connection, int32_t> numbers_;
  Time last_moved_;
};

}  // namespace atl::swarm
