#pragma once
// One bulk connection over its lanes: numbers what is sent, puts what comes in order, bounds both,
// and confirms. Private to atoll/net: striped_transport.h says what it is for and makes the lanes.
//
// Not thread-safe: who calls holds `mutex`. What is to be told the sink is added to `events`.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/net/link_estimate.h"
#include "atoll/net/stripe_frame.h"
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
  struct InFlight {
    uint64_t number = 0;
    size_t bytes = 0;
    ConnectionId lane = 0;
    LinkEstimator::Mark mark;
  };

  Stripe(size_t most_bytes, const Clock& time, Transport& lanes_transport)
      : window_bytes(most_bytes), clock(time), inner(lanes_transport) {}

  /// A frame of data.
  Sent send(const SharedFrame& frame);
  /// The first frame of a lane.
  void send_token(ConnectionId lane, StripeKind kind);
  /// A frame of data that came. What is wrong with it; empty if nothing.
  std::string take_data(uint64_t number, Bytes frame);
  /// The other side has so many. What is wrong with that; empty if nothing.
  std::string confirm(uint64_t there);
  /// A lane has room again.
  void on_writable(Lane& lane);
  void tell_writable();
  /// Ends it now; what its lanes still report is to be ignored.
  void fail(const std::string& reason);

  Lane* find(ConnectionId lane) {
    const auto found = std::ranges::find(lanes, lane, &Lane::id);
    return found == lanes.end() ? nullptr : &*found;
  }

  const size_t window_bytes;
  const Clock& clock;
  Transport& inner;
  ConnectionId id = 0;  // Its first lane's.
  std::string address;  // Whom this side connected to; empty if it was the other one.
  StripeToken token{};

  std::mutex mutex;  // Guards the rest.
  std::vector<Lane> lanes;
  bool opened = false;
  bool over = false;
  bool closing = false;
  bool lanes_refused = false;  // One more could not be had.
  std::string first_reason;    // Why its first lane is gone.

  uint64_t next_number = 0;
  std::deque<InFlight> in_flight;
  size_t in_flight_bytes = 0;
  bool refused = false;  // A send was kFull: Writable is owed.
  LinkEstimator estimator;

  uint64_t num_arrived = 0;        // Without a gap.
  std::map<uint64_t, Bytes> held;  // Arrived before their turn.
  size_t held_bytes = 0;
  size_t unconfirmed_bytes = 0;
  uint64_t num_confirmed = 0;
  Time confirmed_at{};

  std::deque<Event> events;  // To be emitted.
  bool emitting = false;

 private:
  Sent send_on_best(SharedFrame frame, const StripeTrailer& trailer);
  void say_what_arrived();
  size_t ack_bytes() const;
};

}  // namespace atl::net
