#pragma once
// The thread that gives senders their turn and calls timers. Turns go to control before bulk, else
// in the order asked; together they keep to a rate.
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/net/token_bucket.h"
#include "atoll/net/transport.h"

namespace atl::net {

/// What an idle sender may send at once, in seconds of its rate.
constexpr double kBurstSeconds = 0.02;

/// Thread-safe. Actions run on the pacer's thread, with no lock held, and must be quick.
class Pacer {
 public:
  using Action = std::function<void()>;

  /// `bits_per_second` 0: unlimited; then nobody asks for turns. `clock` must outlive the pacer.
  Pacer(double bits_per_second, const Clock& clock);
  ~Pacer() { stop(); }
  /// Ends the thread; actions that wait or come later are dropped. Not from an action.
  void stop();

  bool is_limited() const { return is_limited_; }
  /// Runs `send` when `bytes` may go.
  void request_turn(Plane plane, int64_t bytes, Action send);
  void call_after(Duration delay, Action action);

 private:
  struct Turn {
    int64_t bytes = 0;
    Action send;
  };
  void run();
  /// What to do now, or nothing and (in `next`) for how long nothing will be due.
  Action take_due(std::optional<Duration>& next) ATOLL_REQUIRES(mutex_);

  const Clock& clock_;
  const bool is_limited_;
  double overdraft_bytes_ = 0;
  Mutex mutex_;
  Condition changed_;
  std::optional<TokenBucket> bucket_ ATOLL_GUARDED_BY(mutex_);
  std::deque<Turn> control_ ATOLL_GUARDED_BY(mutex_);
  std::deque<Turn> bulk_ ATOLL_GUARDED_BY(mutex_);
  std::multimap<Time, Action> timers_ ATOLL_GUARDED_BY(mutex_);
  bool stopping_ ATOLL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace atl::net
