#pragma once
// Connections between gateways and servers, and what is to be sent over them: a message that a line
// does not take yet waits here. Thread-safe; events are heard from one thread.
#include <cstddef>
#include <deque>
#include <map>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/chain/messages.h"
#include "atoll/net/transport.h"

namespace atl::chain {

class PeerLines {
 public:
  /// A line for which more than this waits is closed: who is at its end takes nothing any more.
  static constexpr size_t kMaxQueuedBytes = size_t{64} << 20;
  /// Where more than this waits for all lines together, that for which most waits is closed.
  static constexpr size_t kMaxQueuedBytesOfAll = size_t{256} << 20;

  static constexpr Duration kStall = std::chrono::minutes(1);

  /// As a member of the run with that fingerprint; empty in the clear. The transport must outlive
  /// it.
  PeerLines(net::Transport& transport, std::string authority)
      : transport_(transport), authority_(std::move(authority)) {}

  net::ConnectionId call(const std::string& address, net::Plane plane);
  /// To a line that is gone: nothing happens.
  void send(net::ConnectionId line, const Message& message);
  /// What may be more than waits for a line otherwise, and the other side has room for: it goes
  /// behind all else, as the line drains, and counts against no bound. Who calls has one.
  void send_patiently(net::ConnectionId line, const Message& message);
  /// Bytes that wait of that.
  size_t num_patient(net::ConnectionId line) const;
  /// Whether as many bytes of that wait as kStall before, as far as this was asked meanwhile.
  bool has_stalled(net::ConnectionId line, Time now);
  void close(net::ConnectionId line);
  /// Of every event.
  void note(const net::Event& event);

 private:
  struct Line {
    std::deque<Bytes> queue;
    size_t bytes = 0;
    std::deque<Bytes> patient;
    size_t patient_bytes = 0;
    size_t seen_bytes = 0;  // By has_stalled(), and since when as many.
    Time seen{};
    bool is_full = false;
    bool is_closed = false;
  };
  bool take(net::ConnectionId id, Line& line, std::deque<Bytes>& queue) ATOLL_REQUIRES(mutex_);
  void flush(net::ConnectionId id, Line& line) ATOLL_REQUIRES(mutex_);
  void give_up(net::ConnectionId id, Line& line) ATOLL_REQUIRES(mutex_);
  void forget(net::ConnectionId id) ATOLL_REQUIRES(mutex_);

  net::Transport& transport_;
  const std::string authority_;
  mutable Mutex mutex_;
  std::map<net::ConnectionId, Line> lines_ ATOLL_GUARDED_BY(mutex_);
  size_t bytes_ ATOLL_GUARDED_BY(mutex_) = 0;  // Of all lines.
};

}  // namespace atl::chain
