#pragma once
// What a transport tells the coordinator's thread, in order. Pushing never blocks and what is held
// is bounded. When that bound is reached the connection that fills most of it pays: its frames are
// dropped and it is to be closed. So nobody who floods a coordinator does harm to another island,
// or to another run.
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/net/transport.h"

namespace atl::swarm {

/// Thread-safe.
class EventInbox {
 public:
  /// `max_bytes` of frames, each a little more than it has.
  explicit EventInbox(size_t max_bytes) : max_bytes_(max_bytes) {}

  void push(net::Event event);
  /// The next event; nothing after `patience`, and when there is a connection to close.
  std::optional<net::Event> pop(Duration patience);
  /// The connections that have sent more than there is room for, each once. Close them: what they
  /// send until they are lost is dropped.
  std::vector<net::ConnectionId> take_greedy();

 private:
  void cut_greediest() ATOLL_REQUIRES(mutex_);

  Mutex mutex_;
  Condition arrived_;
  std::deque<net::Event> events_ ATOLL_GUARDED_BY(mutex_);
  /// Of frames in events_.
  std::map<net::ConnectionId, size_t> bytes_of_ ATOLL_GUARDED_BY(mutex_);
  size_t num_bytes_ ATOLL_GUARDED_BY(mutex_) = 0;
  const size_t max_bytes_;
  std::set<net::ConnectionId> cut_ ATOLL_GUARDED_BY(mutex_);  // Until they are lost.
  std::vector<net::ConnectionId> greedy_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::swarm
