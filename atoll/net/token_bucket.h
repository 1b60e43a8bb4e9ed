#pragma once
// Holds a sender to a rate: bytes flow into the bucket at the rate, sending takes them out. A taker
// may overdraw, so that a piece larger than the bucket can leave; the debt delays who comes next.
// Pure: time comes in, waits come out.
#include <cstdint>

#include "atoll/base/clock.h"

namespace atl::net {

class TokenBucket {
 public:
  /// Starts full. `bytes_per_second` > 0; `burst_bytes` is what an idle sender saves up.
  TokenBucket(double bytes_per_second, double burst_bytes, Time now);

  /// How long until the level is at least `-overdraft_bytes`; zero when it is.
  Duration wait(Time now, double overdraft_bytes = 0) const;
  /// Takes the bytes, whatever the level.
  void take(Time now, int64_t bytes);
  /// They were taken and not used.
  void give_back(Time now, int64_t bytes);

 private:
  double level_at(Time now) const;

  double bytes_per_second_;
  double burst_bytes_;
  double level_bytes_;
  Time updated_;
};

}  // namespace atl::net
