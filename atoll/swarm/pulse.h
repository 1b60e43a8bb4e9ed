#pragma once
// A member's signs of life: when the next Heartbeat is due, and what it says. Pure.
//
// One is due after each interval, and as soon as the member has trained on so many units since the
// last one that its coordinator wants to hear of it.
#include <cstdint>

#include "atoll/base/clock.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

class Pulse {
 public:
  explicit Pulse(Duration interval) : interval_(interval) {}

  /// The next one is due after an interval.
  void rest(Time now) { next_ = now + interval_; }
  /// Units, after which one is due; 0: by time alone.
  void set_report_every(int64_t num_units) { report_every_ = num_units; }
  /// What has come of the training: the next one says it. Without its header.
  void report(const Heartbeat& progress);
  /// Bytes and units of work that the member has moved.
  void count_moved(uint64_t amount) { moved_ += amount; }
  Time next() const { return next_; }
  /// Without its header, and without what the member is behind with.
  Heartbeat beat(Time now);

 private:
  Duration interval_;
  int64_t report_every_ = 0;
  Heartbeat progress_;
  uint64_t moved_ = 0;
  int64_t num_reported_ = 0;  // Units, in the last one.
  Time next_{};
};

}  // namespace atl::swarm
