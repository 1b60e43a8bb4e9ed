#pragma once
// The last things that happened to the membership, for the status: at most kMost of them, oldest
// first, timed from this process's begin.
#include <cstddef>
#include <deque>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/coordinator/status.h"

namespace atl::swarm {

class RecentEvents {
 public:
  static constexpr size_t kMost = 100;

  explicit RecentEvents(Time began) : began_(began) {}

  void add(const Event& event, Time now) {
    events_.push_back({.time_s = uptime_s(now), .kind = event.kind, .line = event.sentence});
    if (events_.size() > kMost) events_.pop_front();
  }
  double uptime_s(Time now) const { return seconds(now - began_); }
  std::vector<MembershipEvent> all() const { return {events_.begin(), events_.end()}; }

 private:
  Time began_;
  std::deque<MembershipEvent> events_;
};

}  // namespace atl::swarm
