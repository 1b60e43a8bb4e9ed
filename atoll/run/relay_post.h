#pragma once
// A relay's place at its run's coordinator: it says where members may meet, hears who is revoked,
// and comes back when the coordinator does. Pure, but for the transport that it is given.
#include <functional>
#include <optional>
#include <string>

#include "atoll/base/bytes.h"
#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/net/transport.h"

namespace atl::run {

struct RelayPostOptions {
  std::string coordinator;  // HOST:PORT
  std::string authority;    // The fingerprint of the run's, as a member of which it calls.
  std::string name;
  std::string address;  // HOST:PORT where members reach the relay.
  EventSink tell;
  std::function<void(const Bytes&)> on_revocations;  // A list, signed by the authority.
};

/// Not thread-safe. The references must outlive it.
class RelayPost {
 public:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(250);
  static constexpr Duration kLongestPause = std::chrono::seconds(10);

  RelayPost(RelayPostOptions options, net::Transport& transport);

  void handle(const net::Event& event, Time now);
  /// Call at next_deadline() or later, and once to begin.
  void tick(Time now);
  Time next_deadline() const { return due_; }

  /// Members are told of this relay.
  bool is_taken() const { return is_taken_; }
  /// The run is over: how it ended.
  const std::optional<std::string>& over() const { return over_; }
  /// The coordinator does not take this relay, and never will: why.
  const std::optional<std::string>& refused() const { return refused_; }

 private:
  void lose(const std::string& reason, Time now);
  void hear(const Bytes& frame);

  const RelayPostOptions options_;
  net::Transport& transport_;
  net::ConnectionId connection_ = 0;
  Time due_{};
  Duration pause_ = kFirstPause;
  bool is_taken_ = false;
  bool is_missed_ = false;  // The coordinator, and the user knows.
  std::optional<std::string> over_;
  std::optional<std::string> refused_;
};

}  // namespace atl::run
