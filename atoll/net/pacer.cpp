#include "atoll/net/pacer.h"

#include <algorithm>

namespace atl::net {
namespace {
// How far control may run ahead of the rate: a control frame must not wait for the piece of bulk
// that has just gone.
constexpr double kControlAheadSeconds = 1;
}  // namespace

Pacer::Pacer(double bits_per_second, const Clock& clock)
    : clock_(clock), is_limited_(bits_per_second > 0) {
  if (is_limited_) {
    const double rate = bits_per_second / 8;
    bucket_.emplace(rate, kBurstSeconds * rate, clock.now());
    overdraft_bytes_ = kControlAheadSeconds * rate;
  }
  thread_ = std::jthread([this] { run(); });
}

void Pacer::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  control_.clear();
  bulk_.clear();
  timers_.clear();
}

void Pacer::request_turn(Plane plane, int64_t bytes, Action send) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    (plane == Plane::kControl ? control_ : bulk_).push_back({bytes, std::move(send)});
  }
  changed_.notify_all();
}

void Pacer::call_after(Duration delay, Action action) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    timers_.emplace(clock_.now() + delay, std::move(action));
  }
  changed_.notify_all();
}

Pacer::Action Pacer::take_due(std::optional<Duration>& next) {
  const Time now = clock_.now();
  const auto not_before = [&](Duration wait) { next = next ? std::min(*next, wait) : wait; };
  if (!timers_.empty()) {
    const auto first = timers_.begin();
    if (first->first <= now) return std::move(timers_.extract(first).mapped());
    not_before(first->first - now);
  }
  for (auto* turns : {&control_, &bulk_}) {
    if (turns->empty()) continue;
    const Duration wait = bucket_->wait(now, turns == &control_ ? overdraft_bytes_ : 0);
    if (wait == Duration{}) {
      Turn turn = std::move(turns->front());
      turns->pop_front();
      bucket_->take(now, turn.bytes);
      return std::move(turn.send);
    }
    not_before(wait);
  }
  return {};
}

void Pacer::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    std::optional<Duration> next;
    if (Action action = take_due(next)) {
      lock.unlock();
      action();
      action = {};  // What it holds is released without the lock.
      lock.lock();
    } else if (next) {
      changed_.wait_for(lock, *next);
    } else {
      changed_.wait(lock);
    }
  }
}

}  // namespace atl::net
