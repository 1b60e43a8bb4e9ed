#pragma once
// Whether a server that is used still goes on: it is pinged, and one that has not answered for much
// longer than it usually takes, or whose pass over its layers lasts much longer than usual, hangs.
// A machine that is stopped closes no connection. Pure.
#include <cstdint>
#include <deque>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/chain/messages.h"

namespace atl::chain {

class PeerWatch {
 public:
  static constexpr Duration kPingInterval = std::chrono::milliseconds(100);
  static constexpr Duration kLeastPatience = std::chrono::milliseconds(400);
  /// Passes are made to last half a second at most; until some were seen they may last longer.
  static constexpr Duration kLeastPass = std::chrono::seconds(3);
  static constexpr Duration kUnknownPass = std::chrono::seconds(5);

  /// A ping is due: say it.
  bool is_due(Time now) const { return now >= next_ping_; }
  Ping ping(Time now);
  void hear(const Pong& pong, Time now);

  bool hangs(Time now) const;
  /// Its last answer said that it does nothing.
  bool is_idle() const { return last_.pass_ms == 0; }
  /// As measured; zero before there was an answer.
  Duration round_trip() const { return smoothed_; }

 private:
  Duration patience() const;

  uint64_t number_ = 0;
  Time next_ping_{};
  std::deque<std::pair<uint64_t, Time>> unanswered_;
  Duration smoothed_{};  // As TCP does it (RFC 6298).
  Duration deviation_{};
  Pong last_;
  double usual_pass_ms_ = 0;
};

}  // namespace atl::chain
