#pragma once
// Frames over gRPC: one bidirectional stream, on a TCP connection of its own, per connection
// (net/atoll.proto), and more of them for a bulk connection over a long line
// (net/striped_transport.h). No gRPC or protobuf header leaks out of here.
//
// Threads: every method may be called from any thread; events arrive on gRPC's threads. One more
// thread paces and keeps time limits. Not yet encrypted: only loopback addresses are accepted
// unless the options say otherwise.
#include <chrono>
#include <memory>

#include "atoll/base/clock.h"
#include "atoll/net/striped_transport.h"
#include "atoll/net/transport.h"

namespace atl::net {

struct TransportOptions {
  /// Also listens on and connects to other machines, unencrypted. Who sets it warns the user.
  bool insecure = false;
  /// Holds what this process sends, on all connections together, to this rate (bits per second;
  /// 0: unlimited). Control goes first.
  double link_rate_bits_per_s = 0;
  /// What one connection holds before send() says kFull; a bulk one as much as its lanes.
  size_t queue_bytes = size_t{4} << 20;
  size_t lane_queue_bytes = size_t{1} << 20;
  /// How many TCP connections a bulk connection uses.
  std::function<int(const LinkEstimate&)> num_lanes = net::num_lanes;
  /// An address that does not answer is Lost after this. A refused connection is Lost at once.
  std::chrono::milliseconds connect_timeout{5'000};
  /// A peer that is silent and does not answer a ping is Lost after twice this.
  std::chrono::milliseconds keepalive{10'000};
  /// How long close() may take to send what is queued.
  std::chrono::milliseconds close_timeout{2'000};
  /// Inbound connections beyond this are refused.
  int max_inbound = 1'024;
};

/// `clock` paces; it must outlive the transport.
std::unique_ptr<Transport> make_grpc_transport(TransportOptions options, const Clock& clock,
                                               Transport::Sink sink);

}  // namespace atl::net
