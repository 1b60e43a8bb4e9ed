#include "atoll/net/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/net/acceptor.h"
#include "atoll/net/dialer.h"
#include "atoll/net/greeting.h"
#include "atoll/net/meeting.h"
#include "atoll/net/socket_address.h"
#include "atoll/net/stream_connection.h"

namespace atl::net {
namespace {

/// Beside the frames of others: for what striping says of its own.
constexpr size_t kOwnQueueBytes = 4096;
constexpr unsigned kMaxBulkLoops = 4;

bool may_meet(identity::Role role) {
  return role == identity::Role::kIsland || role == identity::Role::kServer ||
         role == identity::Role::kGateway;
}

/// Why the peer may not be at the other end of such a connection; empty when it may. What a member
/// says there is for others to judge.
std::string objection_to(const std::optional<identity::CertificateFacts>& peer, Plane plane,
                         bool is_called, bool is_encrypted) {
  const bool is_join = plane == Plane::kJoin;
  if (!is_encrypted) return is_join ? "nobody gets a certificate in the clear" : "";
  if (!peer) return is_join ? "" : "it showed no certificate";
  if (is_called && plane == Plane::kCircuit && !may_meet(peer->peer.role)) {
    return fmt::format("no {} meets others here", identity::name_of(peer->peer.role));
  }
  const bool asks_coordinator = is_join || plane == Plane::kControl;
  if (is_called || !asks_coordinator || peer->peer.role == identity::Role::kCoordinator) return "";
  return fmt::format("it is {} '{}' of the run, not its coordinator",
                     identity::name_of(peer->peer.role), peer->peer.name);
}

/// One end called the other, or was called.
Met directly(std::unique_ptr<ByteStream> stream) {
  return {.stream = std::move(stream), .way = Way::kDirect, .remote = {}};
}

/// The live connections. Thread-safe.
class ConnectionTable {
 public:
  ConnectionId next_id() {
    const MutexLock lock(mutex_);
    return ++last_id_;
  }
  /// False once sealed. One that came to the door has a place.
  bool add(const std::shared_ptr<StreamConnection>& connection, bool inbound,
           std::shared_ptr<Door::Place> place = nullptr) {
    const MutexLock lock(mutex_);
    if (is_sealed_) return false;
    connections_.emplace(connection->id(), Entry{connection, inbound, std::move(place), {}});
    return true;
  }
  void remove(ConnectionId id) {
    Entry removed;  // Its destructor is called without the lock.
    const MutexLock lock(mutex_);
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    removed = std::move(found->second);
    connections_.erase(found);
    if (removed.give_up) removed.give_up();
    changed_.notify_all();
  }
  /// What makes it, and is to be given up when nobody wants it any more.
  void note_attempt(ConnectionId id, std::function<void()> give_up) {
    const MutexLock lock(mutex_);
    const auto found = connections_.find(id);
    if (found == connections_.end()) return give_up();
    found->second.give_up = std::move(give_up);
  }
  std::shared_ptr<StreamConnection> find(ConnectionId id) const {
    const MutexLock lock(mutex_);
    const auto found = connections_.find(id);
    return found == connections_.end() ? nullptr : found->second.connection;
  }
  int num_inbound() const {
    const MutexLock lock(mutex_);
    return static_cast<int>(std::ranges::count_if(
        connections_, [](const auto& entry) { return entry.second.inbound; }));
  }
  /// Nothing is added from here on.
  void seal() {
    const MutexLock lock(mutex_);
    is_sealed_ = true;
  }
  std::vector<std::shared_ptr<StreamConnection>> all() const {
    const MutexLock lock(mutex_);
    std::vector<std::shared_ptr<StreamConnection>> connections;
    for (const auto& [id, entry] : connections_) connections.push_back(entry.connection);
    return connections;
  }
  void wait_until_empty() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return connections_.empty(); });
  }

 private:
  struct Entry {
    std::shared_ptr<StreamConnection> connection;
    bool inbound = false;
    std::shared_ptr<Door::Place> place;
    std::function<void()> give_up;  // May be empty.
  };
  mutable Mutex mutex_;
  Condition changed_;
  ConnectionId last_id_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool is_sealed_ ATOLL_GUARDED_BY(mutex_) = false;
  std::map<ConnectionId, Entry> connections_ ATOLL_GUARDED_BY(mutex_);
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(TransportOptions options, const Clock& clock, Sink sink)
      : options_(std::move(options)),
        context_(std::make_shared<ConnectionContext>(
            std::move(sink), options_.link_rate_bits_per_s, clock, options_.queue_bytes,
            std::min(options_.queue_bytes, options_.lane_queue_bytes) + kOwnQueueBytes,
            options_.trust ? kRecordOverhead : 0)),
        door_(std::make_shared<Door>(options_.door)),
        greeting_loop_(std::make_shared<EventLoop>(clock)),
        dialling_loop_(std::make_shared<EventLoop>(clock)),
        control_loop_(std::make_shared<EventLoop>(clock)) {
    const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1U, kMaxBulkLoops);
    for (unsigned i = 0; i < count; ++i) bulk_loops_.push_back(std::make_shared<EventLoop>(clock));
    std::vector<std::shared_ptr<Trust>> trusts = options_.more_trusts;
    if (options_.trust) trusts.push_back(options_.trust);
    for (const auto& trust : trusts) {
      callbacks_.emplace_back(trust, trust->on_revocation([this] { end_revoked(); }));
    }
  }

  ~TcpTransport() override {
    for (const auto& [trust, callback] : callbacks_) trust->forget(callback);
    context_->muted = true;
    table_.seal();
    for (const auto& connection : table_.all()) close_in_time(connection);
    table_.wait_until_empty();
    context_->pacer.stop();
    greeting_loop_->stop();
    dialling_loop_->stop();
    control_loop_->stop();
    for (const auto& loop : bulk_loops_) loop->stop();
  }

  Result<std::string> listen(const std::string& text) override;
  ConnectionId connect(const std::string& text, Plane plane) override {
    return connect_as("", text, plane);
  }
  ConnectionId connect_as(const std::string& run, const std::string& text, Plane plane) override;
  ConnectionId meet(const Meeting& meeting, Plane plane) override;

  Sent send(ConnectionId connection, Bytes frame) override {
    const auto found = table_.find(connection);
    return found ? found->send(std::move(frame)) : Sent::kClosed;
  }
  Sent send_shared(ConnectionId connection, SharedFrame frame) override {
    const auto found = table_.find(connection);
    return found ? found->send(std::move(frame)) : Sent::kClosed;
  }

  void close(ConnectionId connection) override {
    if (const auto found = table_.find(connection)) close_in_time(found);
  }

  Traffic traffic() const override { return {context_->bytes_sent, context_->bytes_received}; }

 private:
  Result<Address> address_of(const std::string& text) const {
    return check_address(text, options_.insecure || options_.trust != nullptr);
  }
  std::shared_ptr<StreamConnection> make_connection(Plane plane, const std::string& remote);
  EventLoop& loop_for(Plane plane, ConnectionId id) const {
    return is_brief(plane) ? *control_loop_ : *bulk_loops_[id % bulk_loops_.size()];
  }
  void on_dialled(const std::shared_ptr<StreamConnection>& connection, Plane plane,
                  const std::shared_ptr<Trust>& trust, Result<Descriptor> socket);
  /// Of that run; empty: of the first. Null in the clear.
  std::shared_ptr<Trust> trust_of(const std::string& run) const {
    const auto found = std::ranges::find(options_.more_trusts, run,
                                         [](const auto& trust) { return trust->run(); });
    return found == options_.more_trusts.end() ? options_.trust : *found;
  }
  std::string objection_to_caller(const Hello& hello, const ByteStream& greeted) const;
  void accept(Descriptor socket, std::shared_ptr<Door::Place> place);
  static void attach(const std::shared_ptr<StreamConnection>& connection, Met met, bool inbound,
                     std::shared_ptr<const Trust> trust);
  void close_in_time(const std::shared_ptr<StreamConnection>& connection) const;
  void end_revoked();

  const TransportOptions options_;
  const std::shared_ptr<ConnectionContext> context_;
  ConnectionTable table_;
  std::vector<std::pair<std::shared_ptr<Trust>, int>> callbacks_;  // Of revocations.
  const std::shared_ptr<Door> door_;
  /// Strangers keep nobody but each other waiting: what they cost is done on a loop of their own.
  const std::shared_ptr<EventLoop> greeting_loop_;
  const std::shared_ptr<EventLoop> dialling_loop_;
  const std::shared_ptr<EventLoop> control_loop_;
  std::vector<std::shared_ptr<EventLoop>> bulk_loops_;
  Mutex acceptors_mutex_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_ ATOLL_GUARDED_BY(acceptors_mutex_);
};

std::shared_ptr<StreamConnection> TcpTransport::make_connection(Plane plane,
                                                                const std::string& remote) {
  const ConnectionId id = table_.next_id();
  return std::make_shared<StreamConnection>(id, plane, remote, context_, loop_for(plane, id),
                                            options_.keepalive,
                                            [this](ConnectionId closed) { table_.remove(closed); });
}

Result<std::string> TcpTransport::listen(const std::string& text) {
  const auto address = address_of(text);
  if (!address) return tl::unexpected(address.error());
  auto acceptor = std::make_unique<Acceptor>();
  const auto bound =
      acceptor->listen(greeting_loop_, door_, *address,
                       [this](Descriptor socket, std::shared_ptr<Door::Place> place) {
                         accept(std::move(socket), std::move(place));
                       });
  if (!bound) return tl::unexpected(bound.error());
  const MutexLock lock(acceptors_mutex_);
  acceptors_.push_back(std::move(acceptor));
  return bound->text();
}

ConnectionId TcpTransport::connect_as(const std::string& run, const std::string& text,
                                      Plane plane) {
  const auto address = address_of(text);
  const auto connection = make_connection(plane, address ? address->text() : text);
  if (!table_.add(connection, /*inbound=*/false)) return connection->id();
  if (!address) {
    connection->loop().post(
        [connection, reason = address.error().message] { connection->end(reason); });
    return connection->id();
  }
  dial(dialling_loop_, *address, options_.connect_timeout,
       [this, connection, plane, trust = trust_of(run)](Result<Descriptor> socket) {
         on_dialled(connection, plane, trust, std::move(socket));
       });
  return connection->id();
}

void TcpTransport::on_dialled(const std::shared_ptr<StreamConnection>& connection, Plane plane,
                              const std::shared_ptr<Trust>& trust, Result<Descriptor> socket) {
  const auto fails = [connection](const std::string& why) {
    connection->end(fmt::format("cannot connect to {}: {}", connection->remote(), why));
  };
  if (!socket) return fails(socket.error().message);
  auto stream = make_plain_stream(std::move(*socket));
  if (trust) stream = trust->calling_stream(std::move(stream));
  Greeting::begin_outbound(
      *dialling_loop_, std::move(stream), plane, options_.connect_timeout,
      [connection, fails, plane, trust](const Result<Hello>& hello,
                                        std::unique_ptr<ByteStream> greeted) {
        if (!hello) return fails(hello.error().message);
        const std::string why =
            objection_to(greeted->peer(), plane, /*is_called=*/false, trust != nullptr);
        if (!why.empty()) return fails(why);
        attach(connection, directly(std::move(greeted)), /*inbound=*/false, trust);
      });
}

std::string TcpTransport::objection_to_caller(const Hello& hello, const ByteStream& greeted) const {
  if (hello.plane == Plane::kCircuit && !options_.relay) return "this process relays nothing";
  std::string why =
      objection_to(greeted.peer(), hello.plane, /*is_called=*/true, options_.trust != nullptr);
  if (hello.plane == Plane::kJoin && !options_.takes_joins) why = "nobody is certified here";
  if (why.empty() && greeted.peer()) why = trust_of(greeted.run())->objection(*greeted.peer());
  if (!why.empty() || table_.num_inbound() < options_.max_inbound) return why;
  return fmt::format("all {} connections are taken", options_.max_inbound);
}

void TcpTransport::accept(Descriptor socket, std::shared_ptr<Door::Place> place) {
  auto stream = make_plain_stream(std::move(socket));
  if (options_.trust) {
    stream = options_.trust->called_stream(std::move(stream), options_.takes_joins,
                                           options_.more_trusts);
  }
  const auto objection = [this](const Hello& hello, const ByteStream& greeted) {
    return objection_to_caller(hello, greeted);
  };
  Greeting::begin_inbound(
      *greeting_loop_, std::move(stream), options_.connect_timeout, objection,
      [this, place](const Result<Hello>& hello, std::unique_ptr<ByteStream> greeted) {
        if (!hello) return;  // Nobody here knows of it.
        place->greeted();
        const auto trust = trust_of(greeted->run());
        if (hello->plane == Plane::kCircuit) {
          return options_.relay->take(std::move(greeted), place, trust);
        }
        const auto remote = remote_address(greeted->descriptor()).address().text();
        const auto connection = make_connection(hello->plane, remote);
        if (table_.add(connection, /*inbound=*/true, place)) {
          attach(connection, directly(std::move(greeted)), /*inbound=*/true, trust);
        }
      });
}

ConnectionId TcpTransport::meet(const Meeting& meeting, Plane plane) {
  const auto address = address_of(meeting.relay);
  const std::string relay = address ? address->text() : meeting.relay;
  const auto connection = make_connection(plane, fmt::format("a member through {}", relay));
  const bool inbound = !meeting.calls;
  if (!table_.add(connection, inbound)) return connection->id();
  const auto on_met = [this, connection, relay, inbound](Result<Met> met) {
    if (met) return attach(connection, std::move(*met), inbound, options_.trust);
    connection->end(fmt::format("cannot meet at {}: {}", relay, met.error().message));
  };
  if (!address) {
    connection->loop().post([on_met, why = address.error()] { on_met(tl::unexpected(why)); });
    return connection->id();
  }
  const auto objection = [this, plane, inbound](const Hello& hello, const ByteStream& greeted) {
    if (hello.plane != plane) return std::string("it wants a connection for something else");
    if (inbound) return objection_to_caller(hello, greeted);
    return objection_to(greeted.peer(), plane, /*is_called=*/false, options_.trust != nullptr);
  };
  table_.note_attempt(connection->id(), begin_meeting(dialling_loop_,
                                                      {.relay = *address,
                                                       .circuit = meeting.circuit,
                                                       .calls = meeting.calls,
                                                       .may_punch = meeting.may_punch,
                                                       .plane = plane,
                                                       .trust = options_.trust,
                                                       .any_address = options_.insecure,
                                                       .patience = options_.connect_timeout,
                                                       .punch_patience = options_.punch_timeout,
                                                       .objection = objection},
                                                      on_met));
  return connection->id();
}

void TcpTransport::attach(const std::shared_ptr<StreamConnection>& connection, Met met,
                          bool inbound, std::shared_ptr<const Trust> trust) {
  const auto held = std::make_shared<Met>(std::move(met));
  connection->loop().post([connection, inbound, held, trust = std::move(trust)] {
    connection->attach(std::move(held->stream), inbound, held->way, std::move(held->remote), trust);
    // Who was revoked during the greeting was not there to be cut off.
    connection->end_unless_believed();
  });
}

void TcpTransport::close_in_time(const std::shared_ptr<StreamConnection>& connection) const {
  connection->close();
  connection->loop().call_after(options_.close_timeout, [weak = std::weak_ptr(connection)] {
    if (const auto still = weak.lock()) {
      still->end("closed by this side before everything was sent");
    }
  });
}

void TcpTransport::end_revoked() {
  for (const auto& connection : table_.all()) connection->end_unless_believed();
  if (options_.relay) options_.relay->end_revoked();
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(TransportOptions options, const Clock& clock,
                                              Transport::Sink sink) {
  const auto num_lanes = options.num_lanes;
  return make_striped_transport(
      {.num_lanes = num_lanes},
      [&](Transport::Sink inner_sink) {
        return std::make_unique<TcpTransport>(std::move(options), clock, std::move(inner_sink));
      },
      clock, std::move(sink));
}

}  // namespace atl::net
