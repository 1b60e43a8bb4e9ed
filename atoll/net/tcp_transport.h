#pragma once
// Frames over TCP: a connection of its own each (net/segment.h says what is on it), and more of
// them for a bulk connection over a long line (net/striped_transport.h). With an identity all of it
// is TLS 1.3, and both ends prove who they are; without one only loopback addresses are taken,
// unless the options say otherwise.
//
// Threads: every method may be called from any thread; events arrive on the transport's loops. One
// more thread paces.
#include <chrono>
#include <memory>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/net/door.h"
#include "atoll/net/relay.h"
#include "atoll/net/striped_transport.h"
#include "atoll/net/transport.h"
#include "atoll/net/trust.h"

namespace atl::net {

struct TransportOptions {
  /// Who this process is, and whom it believes; null: connections are in the clear.
  std::shared_ptr<Trust> trust;
  /// Of further runs of which this process is a member too. A caller says which run it means; one
  /// that says nothing means the first.
  std::vector<std::shared_ptr<Trust>> more_trusts;
  /// In the clear, also listens on and connects to other machines. Who sets it warns the user.
  bool insecure = false;
  /// Holds what this process sends, on all connections together, to this rate (bits per second;
  /// 0: unlimited). Control goes first.
  double link_rate_bits_per_s = 0;
  /// What one connection holds before send() says kFull; a bulk one as much as its lanes.
  size_t queue_bytes = size_t{4} << 20;
  size_t lane_queue_bytes = size_t{1} << 20;
  /// How many TCP connections a bulk connection uses.
  std::function<int(const LinkEstimate&)> num_lanes = net::num_lanes;
  /// An address that does not answer is Lost after this. A refused connection is Lost at once. A
  /// caller that does not say Hello in this time is turned away.
  std::chrono::milliseconds connect_timeout{5'000};
  /// A peer that is silent and does not answer a ping is Lost after twice this.
  std::chrono::milliseconds keepalive{10'000};
  /// How long close() may take to send what is queued.
  std::chrono::milliseconds close_timeout{2'000};
  /// Strangers may ask for a certificate here (Plane::kJoin): a coordinator's business.
  bool takes_joins = false;
  /// Inbound connections beyond this are refused.
  int max_inbound = 1'024;
  DoorLimits door;
  /// Members may meet here (Transport::meet); null: this process relays nothing. Its traffic is
  /// its own, not the transport's.
  std::shared_ptr<Relay> relay;
  /// How long two who meet try to reach each other directly.
  std::chrono::milliseconds punch_timeout{3'000};
};

/// `clock` paces; it must outlive the transport.
std::unique_ptr<Transport> make_tcp_transport(TransportOptions options, const Clock& clock,
                                              Transport::Sink sink);

}  // namespace atl::net
