#pragma once
// When a silent peer counts as away: not after a constant, but by how regularly it was heard. As
// TCP estimates its retransmission timeout (Jacobson 1988; RFC 6298): smoothed mean of the pauses
// plus several times their smoothed deviation, which here falls more slowly than it rises. Pure.
#include "atoll/base/clock.h"

namespace atl::swarm {

struct SuspicionOptions {
  Duration expected = std::chrono::milliseconds(400);  // Between two signs of life.
  Duration least = std::chrono::seconds(2);            // However regular it was.
  Duration most = std::chrono::seconds(30);            // However irregular.
};

class Suspicion {
 public:
  Suspicion(SuspicionOptions options, Time now);
  void heard(Time now);
  /// Nothing could be heard until now, whoever spoke.
  void forgive(Time now) { last_ = now; }
  /// If nothing is heard until then, the peer is away.
  Time away_at() const { return last_ + patience(); }
  Duration patience() const;

 private:
  SuspicionOptions options_;
  Time last_;
  double mean_ = 0;       // Seconds.
  double deviation_ = 0;  // Mean distance from the mean.
};

}  // namespace atl::swarm
