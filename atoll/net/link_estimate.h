#pragma once
// What a line carries, seen from the transfers themselves: no probes. Pure: time comes in.
//
// The rate is the largest that was lately kept up over one round trip; little things sent now and
// then do not lower it. The round trip is the shortest lately seen, from handing bytes over to
// hearing that they came, less the time that they themselves take on the line once that is known.
// It holds what waits in queues: it is best where sending begins after a pause.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "atoll/base/clock.h"

namespace atl::net {

/// Zeros: nothing is known yet.
struct LinkEstimate {
  double bytes_per_second = 0;  // Of frames, in the direction of sending.
  Duration round_trip{};
};

class LinkEstimator {
 public:
  /// What the line had carried when some bytes were handed over; kept by the caller until they have
  /// come.
  struct Mark {
    Time sent{};
    int64_t bytes = 0;  // Of these.
    int64_t delivered = 0;
    Time delivered_at{};
  };

  /// `bytes` are handed over.
  Mark sent(Time now, int64_t bytes) {
    if (in_flight_ == 0) delivered_at_ = now;  // The line was idle: that time does not count.
    in_flight_ += bytes;
    return {now, bytes, delivered_, delivered_at_};
  }

  /// They have come, as this side hears now. Marks come back in their order.
  void arrived(Time now, const Mark& mark) {
    in_flight_ -= mark.bytes;
    delivered_ += mark.bytes;
    delivered_at_ = now;
    turn_over(now);
    const int64_t moved = delivered_ - mark.delivered;
    const double elapsed = seconds(now - mark.delivered_at);
    if (elapsed > 0 && moved >= kLeastBytes) {
      const double rate = static_cast<double>(moved) / elapsed;
      rates_.current = std::max(rates_.current, rate);
      // Of a rate over few of its like the round trip itself is a large part.
      if (moved >= kManyTimes * mark.bytes) line_rate_ = std::max(line_rate_, rate);
    }
    const double own = line_rate_ > 0 ? static_cast<double>(mark.bytes) / line_rate_ : 0;
    const double trip = std::max(seconds(now - mark.sent) - own, kLeastTrip);
    trips_.current = trips_.current > 0 ? std::min(trips_.current, trip) : trip;
  }

  LinkEstimate estimate() const {
    const bool both = trips_.current > 0 && trips_.before > 0;
    const double trip = both ? std::min(trips_.current, trips_.before)
                             : std::max(trips_.current, trips_.before);
    return {std::max(rates_.current, rates_.before), Duration(static_cast<int64_t>(trip * 1e9))};
  }

 private:
  static constexpr int64_t kLeastBytes = 16 << 10;  // Less says more of the round trip.
  static constexpr int64_t kManyTimes = 8;
  static constexpr double kLeastTrip = 1e-6;

  /// What was best in a stretch of time, and in the one before: 0 where nothing came.
  struct Best {
    Duration window;
    Time begin{};
    double current = 0;
    double before = 0;

    bool turn_over(Time now) {
      if (now - begin < window) return false;
      begin = now;
      if (current > 0) before = std::exchange(current, 0);
      return true;
    }
  };

  void turn_over(Time now) {
    trips_.turn_over(now);
    if (rates_.turn_over(now)) line_rate_ = rates_.before;
  }

  int64_t in_flight_ = 0;
  int64_t delivered_ = 0;
  Time delivered_at_{};
  double line_rate_ = 0;
  Best rates_{.window = std::chrono::seconds(30)};
  Best trips_{.window = std::chrono::minutes(5)};
};

}  // namespace atl::net
