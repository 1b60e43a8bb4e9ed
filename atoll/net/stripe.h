#pragma once
// One bulk connection over its lanes: which lane a frame takes, what is said to the other side, and
// when all is over. The order of frames and their bounds are stripe_order.h's. Private to
// atoll/net: striped_transport.h says what it is for and makes the lanes.
//
// Who calls holds `mutex`. What is to be told the sink is added to `events`.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/net/stripe_frame.h"
#include "atoll/net/stripe_order.h"
#include "atoll/net/transport.h"

namespace atl::net {

/// One bulk connection.
struct Stripe {
  struct Lane {
    ConnectionId id = 0;
    bool opened = false;
    bool full = false;
    size_t in_flight = 0;
  };
  Stripe(size_t most_bytes, const Clock& time, Transport& lanes_transport)
      : clock(time), inner(lanes_transport), flight(most_bytes), arrivals(most_bytes) {}

  /// A frame of data.
  Sent send(const SharedFrame& frame) ATOLL_REQUIRES(mutex);
  /// The first frame of a lane.
  void send_token(ConnectionId lane, StripeKind kind) ATOLL_REQUIRES(mutex);
  /// A frame of data that came. What is wrong with it; empty if nothing.
  std::string take_data(uint64_t number, Bytes frame) ATOLL_REQUIRES(mutex);
  /// The other side has so many. What is wrong with that; empty if nothing.
  std::string confirm(uint64_t there) ATOLL_REQUIRES(mutex);
  /// A lane has room again.
  void on_writable(Lane& lane) ATOLL_REQUIRES(mutex);
  void tell_writable() ATOLL_REQUIRES(mutex);
  /// Ends it now; what its lanes still report is to be ignored.
  void fail(const std::string& reason) ATOLL_REQUIRES(mutex);

  Lane* find(ConnectionId lane) ATOLL_REQUIRES(mutex) {
    const auto found = std::ranges::find(lanes, lane, &Lane::id);
    return found == lanes.end() ? nullptr : &*found;
  }

  const Clock& clock;
  Transport& inner;
  ConnectionId id = 0;  // Its first lane's.
  bool calls = false;   // This side does, not the other one.
  std::string address;  // Of whom it calls; empty where more lanes cannot be had.
  std::string run;      // As a member of which.

  Mutex mutex;
  /// Who is at the other end of the first lane, and so of all; nothing in the clear.
  std::optional<identity::PeerId> peer ATOLL_GUARDED_BY(mutex);
  StripeToken token ATOLL_GUARDED_BY(mutex){};
  std::vector<Lane> lanes ATOLL_GUARDED_BY(mutex);
  bool opened ATOLL_GUARDED_BY(mutex) = false;
  bool over ATOLL_GUARDED_BY(mutex) = false;
  bool closing ATOLL_GUARDED_BY(mutex) = false;
  bool lanes_refused ATOLL_GUARDED_BY(mutex) = false;  // One more could not be had.
  std::string first_reason ATOLL_GUARDED_BY(mutex);    // Why its first lane is gone.

  StripeFlight flight ATOLL_GUARDED_BY(mutex);
  StripeArrivals arrivals ATOLL_GUARDED_BY(mutex);
  bool refused ATOLL_GUARDED_BY(mutex) = false;      // A send was kFull: Writable is owed.
  std::deque<Event> events ATOLL_GUARDED_BY(mutex);  // To be emitted.
  bool emitting ATOLL_GUARDED_BY(mutex) = false;

 private:
  Sent send_on_best(SharedFrame frame, const StripeTrailer& trailer) ATOLL_REQUIRES(mutex);
  void say_what_arrived() ATOLL_REQUIRES(mutex);
};

}  // namespace atl::net
