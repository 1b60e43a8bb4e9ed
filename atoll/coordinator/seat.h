#pragma once
// A member's place in the run, as the coordinator has it: its state, its connection, how regularly
// it is heard, how far it has come. Pure. docs/protocol.md has the states and who may leave them.
//
// Invariants: the state changes by the methods below alone, and from kLeft never; who is neither
// here nor returning is not waited for; what a member has trained on and caught up with only rises.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/coordinator/status.h"
#include "atoll/coordinator/suspicion.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

class Seat {
 public:
  using Connection = uint64_t;
  // kBehind -> kActive -> kAway -> kBehind ..., and from each to kLeaving -> kLeft. kReturning:
  // this process has not heard of it yet; the rounds wait for a while. kLeaving: no round waits for
  // it, but it still has what others lack.
  enum class State : uint8_t { kBehind, kActive, kReturning, kAway, kLeaving, kLeft };

  Seat(State state, std::optional<Connection> connection, SuspicionOptions suspicion, Time now);

  State state() const { return state_; }
  bool is_live() const { return state_ == State::kActive || state_ == State::kReturning; }
  /// Live, or on its way to it: it may ask others for what it lacks.
  bool is_here() const { return is_live() || state_ == State::kBehind; }
  std::optional<Connection> connection() const { return connection_; }
  void connect(Connection connection) { connection_ = connection; }
  void disconnect() { connection_.reset(); }

  /// It said something. True: it was away, and is behind now.
  bool hear(Time now);
  /// Nothing could be heard until now, whoever spoke.
  void forgive(Time now);
  /// It should have been heard by now.
  bool is_silent(Time now) const;
  Duration patience() const { return suspicion_.patience(); }
  /// Since when it is away or leaving, or is expected to return.
  Time away_since() const { return away_since_; }

  /// It has all that was committed: rounds from that one on wait for it.
  void take_part(int64_t first_round, Time now);
  void put_away(const std::string& why, Time now);
  void leave(Time now);
  void leave_for_good() { state_ = State::kLeft; }
  /// By Resume, whose first round that is; -1: it was behind.
  void come_back(int64_t first_round, Time now);
  /// In a new process that has all it had: waited for in all rounds, with the results of so many
  /// commits.
  void come_back_whole(uint64_t num_commits, Time now);

  /// Has contributed nothing yet.
  bool is_new() const { return is_new_; }
  void contribute() { is_new_ = false; }
  /// From which on it is waited for, where active.
  int64_t first_round() const { return first_round_; }
  void wait_from(int64_t round) { first_round_ = round; }

  void report(const Heartbeat& heartbeat, Time now);
  const Heartbeat& progress() const { return progress_; }
  /// Units of its leases, ever.
  int64_t num_trained() const { return num_trained_; }
  void note_trained(int64_t num_units) { num_trained_ = std::max(num_trained_, num_units); }
  /// When that last said that it had taken a step.
  Time trained_at() const { return trained_at_; }

  /// It has the results of so many commits.
  void note_caught_up(uint64_t num_commits) { caught_up_ = std::max(caught_up_, num_commits); }
  /// It has the result of that one.
  void note_commit(uint64_t index) { caught_up_ += caught_up_ == index ? 1 : 0; }
  bool has(uint64_t commit) const { return caught_up_ > commit; }
  bool is_level(uint64_t num_commits) const { return caught_up_ == num_commits; }
  bool lacks_any(uint64_t num_commits) const { return caught_up_ < num_commits; }

  /// Whether others can call it at its address; `fault`: why not. Nothing: that is not known.
  void note_reach(std::optional<std::string> fault) { fault_of_address_ = std::move(fault); }
  bool is_reachable() const { return fault_of_address_ && fault_of_address_->empty(); }

  void note_left_out() { num_left_out_ += 1; }
  IslandStatus status(const Peer& peer, Time now) const;

 private:
  State state_;
  std::optional<Connection> connection_;
  Suspicion suspicion_;
  Time heard_;
  Time away_since_;
  std::string reason_;  // Why it is away.
  bool is_new_ = true;
  int64_t first_round_ = 0;
  Heartbeat progress_;
  int64_t num_trained_ = 0;
  Time trained_at_{};
  uint64_t caught_up_ = 0;
  int64_t num_left_out_ = 0;  // Rounds.
  std::optional<std::string> fault_of_address_;
};

}  // namespace atl::swarm
