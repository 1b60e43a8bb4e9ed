#pragma once
// Ordered, checked frames between machines. Three transports exist: TCP (net/tcp_transport.h),
// the simulator's (sim/sim_transport.h: one thread, virtual time) and one within a process, for
// ThreadSanitizer (testing/memory_transport.h: real threads, no network). Protocol code sees only
// this interface, so it runs the same under all. Connections are two-way; each side may send at
// once.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "atoll/base/bytes.h"
#include "atoll/base/result.h"
#include "atoll/identity/certificate.h"
#include "atoll/net/link_estimate.h"

namespace atl::net {

/// Names a connection within one transport. Never reused.
using ConnectionId = uint64_t;

/// Control messages have a connection of their own and never queue behind bulk data.
/// kLane: one more connection for a bulk connection that stands (net/striped_transport.h); only
/// transports use it. kJoin: who is no member yet asks for a certificate, or a member for a new
/// one; its frames are short (kMaxJoinFrameBytes).
/// kCircuit: what two members say to each other through a relay (net/relay.h); only transports use
/// it. kPeer: as kControl, between members; at the other end of kControl only a coordinator is
/// taken.
enum class Plane : uint8_t { kControl, kBulk, kLane, kJoin, kCircuit, kPeer };
constexpr Plane kLastPlane = Plane::kPeer;
/// Short messages, which do not wait for long ones.
constexpr bool is_brief(Plane plane) { return plane == Plane::kControl || plane == Plane::kPeer; }

/// How a connection came about: one end called the other; both called at once, through what
/// translates their addresses; or a relay passes on what they say, which it cannot read.
enum class Way : uint8_t { kDirect, kPunched, kRelayed };
constexpr std::string_view name_of(Way way) {
  return way == Way::kDirect ? "direct" : way == Way::kPunched ? "punched" : "relayed";
}

/// What two members name who want to meet at a relay: random, and known to them alone.
using CircuitId = std::array<std::byte, 16>;

/// Where a member meets another that it cannot reach directly.
struct Meeting {
  std::string relay;  // HOST:PORT
  CircuitId circuit{};
  /// One of the two calls the other, whose connection is inbound.
  bool calls = false;
  /// First a direct connection is tried, through the NATs of both ends.
  bool may_punch = true;
};

/// A connection is usable from here on. `remote` is for messages to people.
struct Opened {
  ConnectionId connection = 0;
  bool inbound = false;
  Plane plane = Plane::kControl;
  std::string remote;
  /// The other side's, of which it has proved to have the key. Nothing in the clear.
  std::optional<identity::CertificateFacts> certificate;
  Way way = Way::kDirect;
  /// The fingerprint of the run whose members both ends are, or one asks to become; empty in the
  /// clear.
  std::string run;
};
/// One whole frame, in the order sent, its checksum verified.
struct Received {
  ConnectionId connection = 0;
  Bytes frame;
};
/// After a refused send: there is room again.
struct Writable {
  ConnectionId connection = 0;
};
/// The connection is gone, or could not be made: a sentence says why. Exactly once per connection,
/// and its last event, on both sides; the side that called close() gets it too.
struct Lost {
  ConnectionId connection = 0;
  std::string reason;
  bool all_arrived = false;  // The other side closed it; all that it sent before has been received.
};
using Event = std::variant<Opened, Received, Writable, Lost>;

/// What a queue of events has to hold for it: its frame, if it brings one.
inline size_t frame_bytes(const Event& event) {
  const auto* const received = std::get_if<Received>(&event);
  return received == nullptr ? 0 : received->frame.size();
}

enum class Sent : uint8_t {
  kAccepted,  // Queued; it arrives in order unless the connection is lost.
  kFull,      // Not taken; wait for Writable.
  kClosed,    // No such connection any more.
};

struct Traffic {
  int64_t bytes_sent = 0;  // Frames with their headers, as handed to the operating system.
  int64_t bytes_received = 0;
};

/// A frame whose body lies in memory that others use too: where a transport can, it sends it from
/// there. It arrives as head, body and tail in one piece.
struct SharedFrame {
  Bytes head;
  std::shared_ptr<const Bytes> blob;  // Never changes. May be null.
  size_t begin = 0;                   // The body, within the blob.
  size_t num_bytes = 0;
  Bytes tail;

  size_t size() const { return head.size() + num_bytes + tail.size(); }
  std::span<const std::byte> body() const;
  std::array<std::span<const std::byte>, 3> parts() const { return {head, body(), tail}; }
  Bytes joined() const;
};

class Transport {
 public:
  /// Receives events one at a time per connection, on a thread of the transport: it must be quick
  /// (push to a queue) and must not call back into the transport. It must outlive the transport.
  using Sink = std::function<void(Event)>;

  /// Closes everything as close() does, then returns; the sink is not called any more.
  virtual ~Transport() = default;
  /// Accepts connections on "HOST:PORT" (port 0: the system chooses) and returns the address bound.
  /// Fails when the port is in use.
  virtual Result<std::string> listen(const std::string& address) = 0;
  /// Starts to connect; Opened or Lost follows (a bad address is Lost too).
  virtual ConnectionId connect(const std::string& address, Plane plane) = 0;
  /// The same, as a member of that run, by its fingerprint, where this process is one of several.
  virtual ConnectionId connect_as(const std::string& /*run*/, const std::string& address,
                                  Plane plane) {
    return connect(address, plane);
  }
  /// Starts to meet another member; both have to within a few seconds. Opened or Lost follows, at
  /// both ends.
  virtual ConnectionId meet(const Meeting& meeting, Plane plane) = 0;
  /// Never blocks. Each connection queues a bounded number of bytes. Sending before Opened is
  /// allowed: the frame waits. `frame` has at most kMaxFrameBytes.
  [[nodiscard]] virtual Sent send(ConnectionId connection, Bytes frame) = 0;
  /// The same; copies the frame unless the transport knows better.
  [[nodiscard]] virtual Sent send_shared(ConnectionId connection, SharedFrame frame);
  /// What is queued is still sent (within a bounded time), then both sides see Lost. Frames that
  /// arrive meanwhile are dropped.
  virtual void close(ConnectionId connection) = 0;
  virtual Traffic traffic() const = 0;
  /// What a bulk connection carries, as known from what was sent over it; zeros where unknown.
  virtual LinkEstimate estimate(ConnectionId /*connection*/) const { return {}; }
};

/// How a session gets its transport: the owner of the sink calls it.
using TransportFactory = std::function<std::unique_ptr<Transport>(Transport::Sink)>;

/// Largest frame either side accepts: bounds memory before anything is parsed.
constexpr size_t kMaxFrameBytes = size_t{4} << 20;
constexpr size_t kMaxJoinFrameBytes = size_t{64} << 10;

}  // namespace atl::net
