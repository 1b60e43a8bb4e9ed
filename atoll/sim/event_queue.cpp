#include "atoll/sim/event_queue.h"

#include <algorithm>

namespace atl::sim {

void EventQueue::at(Time time, Action action) {
  events_.emplace(std::pair(std::max(time, now_), num_added_++), std::move(action));
}

bool EventQueue::step() {
  if (events_.empty()) return false;
  auto event = events_.extract(events_.begin());
  now_ = event.key().first;
  event.mapped()();
  return true;
}

void EventQueue::run_until(Time time) {
  while (!events_.empty() && events_.begin()->first.first <= time) step();
  now_ = std::max(now_, time);
}

bool EventQueue::run_until(const std::function<bool()>& done, Duration patience) {
  const Time deadline = now_ + patience;
  while (!done()) {
    if (events_.empty() || events_.begin()->first.first > deadline) return false;
    step();
  }
  return true;
}

}  // namespace atl::sim
