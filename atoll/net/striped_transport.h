#pragma once
// Several connections of another transport as one: where one TCP connection cannot fill a line (its
// buffers are short for the round trip, or it backs off with each loss), a bulk connection gets
// more lanes. Control passes through untouched.
//
// Frames are numbered and go to the lane that has least to carry; the receiver puts them in order
// again, and says how far it has come, in what it sends anyway or in frames of their own. So a
// sender is never more than a window ahead, which bounds what the receiver must hold, and learns
// what the line carries (link_estimate.h). The side that connects adds lanes as the estimate grows;
// the other side knows them by a token.
//
// Threads: as Transport says. The inner transport's sink calls back into it (send, connect, close),
// which is more than Transport promises: TCP's, memory's and the simulator's allow it. A
// connection has a lock, under which the inner transport is called; `mutex_` is inside it, and no
// lock is held when the sink is called.
#include <functional>
#include <memory>

#include "atoll/base/clock.h"
#include "atoll/net/link_estimate.h"
#include "atoll/net/transport.h"

namespace atl::net {

constexpr int kMaxLanes = 4;

/// How many lanes a line with this estimate wants, 1 to kMaxLanes: what one loses to full buffers
/// and lost packets grows with the round trip. A slow line is filled by one.
int num_lanes(const LinkEstimate& estimate);

struct StripeOptions {
  /// Sent and not yet known to have arrived, at most, on one connection. More than a line and the
  /// buffers at its ends hold: 1 Gbit/s with a round trip of 100 ms.
  size_t window_bytes = size_t{48} << 20;
  std::function<int(const LinkEstimate&)> num_lanes = net::num_lanes;
};

/// `make_inner` is called once. The clock must outlive the transport.
std::unique_ptr<Transport> make_striped_transport(StripeOptions options,
                                                  const TransportFactory& make_inner,
                                                  const Clock& clock, Transport::Sink sink);

}  // namespace atl::net
