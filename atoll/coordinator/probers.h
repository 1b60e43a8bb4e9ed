#pragma once
// Those who measure their line to a coordinator (Probe), and how much of it they may have. Anybody
// can be one, and the coordinator serves its runs from the same thread. So what all of them
// together may make it do comes out of one bucket, however often they connect: a measurement is let
// in when the bucket holds all that one may cost, and what it did not use goes back. Pure: time
// comes in.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/net/token_bucket.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

/// The answer to a Probe, as encode() writes it; the zeros are the same for all answers.
/// `num_bytes` is at most kMaxProbeBytes.
net::SharedFrame probe_reply(size_t num_bytes);

/// Not thread-safe.
class Probers {
 public:
  using Connection = net::ConnectionId;

  /// At once.
  static constexpr size_t kMaxProbers = 4;
  /// A message costs its bytes, those that it asks for, and its handling as so many.
  static constexpr uint64_t kMessageCost = uint64_t{8} << 10;
  /// What a measurement may cost; an honest one (link_measurement.h) needs less.
  static constexpr uint64_t kMaxCost = uint64_t{80} << 20;
  /// What all of them may cost at once, and then in a second.
  static constexpr uint64_t kBurst = kMaxProbers * kMaxCost;
  static constexpr uint64_t kCostPerSecond = uint64_t{1} << 20;
  /// How long a measurement may take, and be silent.
  static constexpr Duration kTimeout = std::chrono::seconds(60);
  static constexpr Duration kSilence = std::chrono::seconds(10);
  /// From then on it makes way for another where all places are taken.
  static constexpr Duration kTurn = std::chrono::seconds(15);
  /// How long a host waits behind its last measurement. It has one place at a time.
  static constexpr Duration kCoolDown = std::chrono::seconds(5);
  static constexpr size_t kMaxCooling = 256;  // Hosts.

  bool contains(Connection connection) const { return probers_.contains(connection); }

  /// A place for who connects from that host ("HOST:PORT"). Fails with what to tell it. `ended` is
  /// whoever has to make way.
  [[nodiscard]] Result<void> admit(Connection connection, const std::string& remote, Time now,
                                   std::vector<Connection>& ended);
  /// Takes what the message costs from its share. Fails with what to tell it when that is more than
  /// a coordinator does. contains(connection).
  [[nodiscard]] Result<void> spend(Connection connection, const Probe& probe, Time now);
  /// It is gone, or shall be; nothing happens when it was none.
  void end(Connection connection, Time now);

  /// Those that have been silent, or have measured, for too long: they are ended.
  std::vector<Connection> end_late(Time now);
  Time next_deadline() const;
  /// Nobody measures any more; says who did.
  std::vector<Connection> end_all();

 private:
  struct Prober {
    std::string host;
    Time since{};
    Time last_word{};
    uint64_t spent = 0;

    Time deadline() const { return std::min(since + kTimeout, last_word + kSilence); }
  };

  std::map<Connection, Prober> probers_;
  std::map<std::string, Time> cooling_;  // Hosts, until when.
  net::TokenBucket bucket_{static_cast<double>(kCostPerSecond), static_cast<double>(kBurst),
                           Time{}};
};

}  // namespace atl::swarm
