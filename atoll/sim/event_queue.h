#pragma once
// Virtual time: events in the order of their time, ties in the order they were added. Single
// threaded; nothing happens but inside step() and what calls it.
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "atoll/base/clock.h"

namespace atl::sim {

class EventQueue final : public Clock {
 public:
  using Action = std::function<void()>;

  Time now() const override { return now_; }
  /// Runs `action` at `time`, or now if that is past. Actions may add actions.
  void at(Time time, Action action);
  void after(Duration delay, Action action) { at(now_ + delay, std::move(action)); }

  bool empty() const { return events_.empty(); }
  /// Advances to the next event and runs it; false when there is none.
  bool step();
  /// Runs what is due until `time`, which is then the time.
  void run_until(Time time);
  void run_for(Duration duration) { run_until(now_ + duration); }
  /// Runs until `done()` holds (looked at after each event); false if that has not happened within
  /// `patience` of virtual time or nothing is left to happen.
  bool run_until(const std::function<bool()>& done, Duration patience);

 private:
  Time now_{};
  uint64_t num_added_ = 0;
  std::map<std::pair<Time, uint64_t>, Action> events_;
};

}  // namespace atl::sim
