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
  /// Kept by the caller for bytes that are on their way.
  struct Mark {
    Time sent{};
    int64_t bytes = 0;
  };

  /// `bytes` are handed over.
  Mark sent(Time now, int64_t bytes) {
    if (in_flight_ == 0) begin_stretch(now, /*is_full=*/false);
    in_flight_ += bytes;
    return {now, bytes};
  }

  /// They have come, as this side hears now. Marks come back in their order.
  void arrived(Time now, const Mark& mark) {
    in_flight_ -= mark.bytes;
    stretch_bytes_ += mark.bytes;
    trips_.turn_over(now);
    if (rates_.turn_over(now)) line_rate_ = rates_.before;
    // Confirmations come in bunches: a rate is one over a stretch of time, or over all there was.
    const double elapsed = seconds(now - stretch_begin_);
    const bool is_whole = now - stretch_begin_ >= kStretch;
    const bool is_all = in_flight_ == 0 && !is_stretch_full_ && stretch_bytes_ >= kLeastBytes;
    if (elapsed > 0 && (is_whole || is_all)) {
      const double rate = static_cast<double>(stretch_bytes_) / elapsed;
      rates_.current = std::max(rates_.current, rate);
      // A stretch that began on an idle line holds a round trip in which nothing came.
      if (is_stretch_full_) line_rate_ = std::max(line_rate_, rate);
      begin_stretch(now, /*is_full=*/true);
    }
    const double own = line_rate_ > 0 ? static_cast<double>(mark.bytes) / line_rate_ : 0;
    const double trip = std::max(seconds(now - mark.sent) - own, kLeastTrip);
    trips_.current = trips_.current > 0 ? std::min(trips_.current, trip) : trip;
  }

  LinkEstimate estimate() const {
    const bool both = trips_.current > 0 && trips_.before > 0;
    const double trip =
        both ? std::min(trips_.current, trips_.before) : std::max(trips_.current, trips_.before);
    return {std::max(rates_.current, rates_.before), Duration(static_cast<int64_t>(trip * 1e9))};
  }

 private:
  static constexpr Duration kStretch = std::chrono::seconds(1);
  static constexpr int64_t kLeastBytes = 16 << 10;  // Less says more of the round trip.
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

  void begin_stretch(Time now, bool is_full) {
    stretch_begin_ = now;
    stretch_bytes_ = 0;
    is_stretch_full_ = is_full;
  }

  int64_t in_flight_ = 0;
  Time stretch_begin_{};
  int64_t stretch_bytes_ = 0;     // Arrived in it.
  bool is_stretch_full_ = false;  // The line was busy before it too.
  double line_rate_ = 0;
  Best rates_{.window = std::chrono::seconds(30)};
  Best trips_{.window = std::chrono::minutes(5)};
};

}  // namespace atl::net
