#pragma once
// Islands that have said Hello and are no members yet: who has come, who is ready, what they hold
// on disk. Pure.
//
// Invariants: a guest is ready once at most, with a checkpoint at least, and with the facts that
// all others of the run had; at most kMost are here at once.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

struct Guest {
  Hello hello;
  std::optional<Ready> ready;
  Time heard{};

  /// Ready, with a state beyond the run's first one.
  bool holds_training() const;
};

class Guests {
 public:
  using Connection = uint64_t;
  static constexpr size_t kMost = 1024;

  /// `facts`: what must be equal on all islands; empty: as the first who is ready has it.
  explicit Guests(std::map<std::string, std::string> facts) : facts_(std::move(facts)) {}

  const std::map<std::string, std::string>& facts() const { return facts_; }
  const std::map<Connection, Guest>& all() const { return guests_; }
  bool empty() const { return guests_.empty(); }
  bool is_full() const { return guests_.size() >= kMost; }
  bool contains(Connection connection) const { return guests_.contains(connection); }
  const Guest& at(Connection connection) const { return guests_.at(connection); }
  bool has(const std::string& name) const;
  bool is_ready(const std::string& name) const;
  int64_t num_ready() const;
  std::vector<Connection> ready() const;

  void come(Connection connection, const Hello& hello, Time now);
  void hear(Connection connection, Time now) { guests_.at(connection).heard = now; }
  /// Why it cannot be ready so; empty if it can.
  std::string objection_to(Connection connection, const Ready& ready) const;
  /// There is no objection.
  void make_ready(Connection connection, const Ready& ready);
  /// It is none any more: lost, refused, or a member.
  Hello take(Connection connection);
  void erase(Connection connection) { guests_.erase(connection); }

  std::vector<Connection> silent(Time now, Duration patience) const;
  /// Nothing could be heard until now.
  void forgive(Time now);
  /// Of each who is ready the newest checkpoint, for a person.
  std::string newest_checkpoints() const;

 private:
  std::map<std::string, std::string> facts_;
  std::map<Connection, Guest> guests_;
};

}  // namespace atl::swarm
