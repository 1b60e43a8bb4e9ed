#include "atoll/net/grpc_link.h"

#include <fmt/format.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <array>
#include <utility>

#include "atoll/net/segment.h"

namespace atl::net {
namespace {

using grpc::ByteBuffer;

constexpr std::array kPlanes = {Plane::kControl, Plane::kBulk, Plane::kLane};
constexpr const char* kMethod = "/atl.net.wire.Link/Connect";

template <typename Metadata>
std::string value_of(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

std::string version_mismatch(const std::string& theirs) {
  return fmt::format("it speaks Atoll protocol {}, this side {}: use one version of Atoll",
                     theirs.substr(0, 20), kProtocolVersion);
}

/// "ipv4:127.0.0.1:80" and "ipv6:%5B::1%5D:80" as people write them.
std::string readable_peer(std::string peer) {
  for (const auto& [from, to] : {std::pair("ipv4:", ""), std::pair("ipv6:", ""),
                                 std::pair("%5B", "["), std::pair("%5D", "]")}) {
    const size_t at = peer.find(from);
    if (at != std::string::npos) peer.replace(at, std::string_view(from).size(), to);
  }
  return peer;
}

/// The channel keeps one TCP connection, shared with no other channel.
std::shared_ptr<grpc::Channel> make_channel(const Address& address,
                                            const TransportOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // A retry would keep copies of what was sent.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(options.connect_timeout.count()));
  const int keepalive = static_cast<int>(options.keepalive.count());
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(static_cast<int>(Connection::kMaxPieceBytes) +
                                     kSegmentOverhead);
  return grpc::CreateCustomChannel(address.text(), channel_credentials(), arguments);
}

/// What both ends of a call do alike; `Reactor` is gRPC's of that side.
template <typename Reactor>
class StreamConnection : public Connection, public Reactor {
 protected:
  StreamConnection(Plane plane, std::string remote, std::shared_ptr<ConnectionContext> context,
                   std::shared_ptr<ConnectionTable> table)
      : Connection(table->next_id(), plane, std::move(remote), std::move(context)),
        table_(std::move(table)) {}

  void keep_alive() { self_ = shared_from_this(); }
  void read_next() { this->StartRead(&incoming_); }

  void take_piece() {
    auto piece = to_piece(incoming_);
    incoming_.Clear();
    if (piece) {
      on_piece(std::move(*piece));
    } else {
      end(fmt::format("{} sent what is no segment", remote()));
    }
    if (!is_over()) read_next();
  }

  void OnWriteDone(bool is_written) override {
    outgoing_.Clear();  // Lets go of the frame.
    on_written(is_written);
  }

  void retire() {
    const auto table = table_;  // This object may be gone before retire() returns.
    table->retire(std::move(self_));
  }

  void note_end() { table_->note_end(); }

 private:
  void write(const OutPiece& piece) override {
    outgoing_ = to_segment(piece);
    this->StartWrite(&outgoing_);
  }

  std::shared_ptr<ConnectionTable> table_;
  ByteBuffer outgoing_;
  ByteBuffer incoming_;
  std::shared_ptr<Connection> self_;
};

class OutboundConnection final
    : public StreamConnection<grpc::ClientBidiReactor<ByteBuffer, ByteBuffer>> {
 public:
  OutboundConnection(Plane plane, const Address& address, const TransportOptions& options,
                     std::shared_ptr<ConnectionContext> context,
                     std::shared_ptr<ConnectionTable> table)
      : StreamConnection(plane, address.text(), std::move(context), std::move(table)),
        channel_(make_channel(address, options)),
        stub_(channel_) {
    call_.AddMetadata(kProtocolKey, kProtocolVersion);
    call_.AddMetadata(kPlaneKey, plane_name(plane));
  }

  void start() {
    keep_alive();
    stub_.PrepareBidiStreamingCall(&call_, kMethod, {}, this);
    AddHold();  // Writes come from outside of reactions, until stop().
    StartCall();
  }

 private:
  void OnReadInitialMetadataDone(bool is_read) override {
    if (is_read) {
      const std::string version = value_of(call_.GetServerInitialMetadata(), kProtocolKey);
      if (version == kProtocolVersion) {
        was_open_ = true;
        on_opened(/*inbound=*/false);
      } else if (!version.empty()) {
        end(fmt::format("cannot connect to {}: {}", remote(), version_mismatch(version)));
      }
    }
    read_next();
  }

  void OnReadDone(bool is_read) override {
    if (is_read) {
      take_piece();
    } else if (stop()) {
      RemoveHold();
    }
  }

  void OnDone(const grpc::Status& status) override {
    emit_lost(reason_unless_closing(describe(status)));
    retire();
  }

  void end_call() override {
    call_.TryCancel();
    note_end();
    RemoveHold();  // From here on this object may go.
  }

  std::string describe(const grpc::Status& status) const {
    const std::string& message = status.error_message();
    if (was_open_) {
      return status.ok() ? "closed by the other side"
                         : fmt::format("connection to {} lost: {}", remote(), message);
    }
    std::string reason = message;
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) reason = "it is no Atoll peer";
    if (message.find("Connection refused") != std::string::npos) reason = "connection refused";
    return fmt::format("cannot connect to {}: {}", remote(), reason);
  }

  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext call_;
  std::atomic<bool> was_open_ = false;
};

class InboundConnection final
    : public StreamConnection<grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>> {
 public:
  InboundConnection(Plane plane, grpc::CallbackServerContext& call,
                    std::shared_ptr<ConnectionContext> context,
                    std::shared_ptr<ConnectionTable> table,
                    std::shared_ptr<std::atomic<int>> num_inbound)
      : StreamConnection(plane, readable_peer(call.peer()), std::move(context), std::move(table)),
        call_(call),
        num_inbound_(std::move(num_inbound)) {
    ++*num_inbound_;
  }
  ~InboundConnection() override { --*num_inbound_; }

  void start() {
    keep_alive();
    call_.AddInitialMetadata(kProtocolKey, kProtocolVersion);
    StartSendInitialMetadata();
    on_opened(/*inbound=*/true);
    read_next();
  }

 private:
  void OnReadDone(bool is_read) override {
    if (is_read) {
      take_piece();
    } else {
      end(reason_unless_closing(
          fmt::format("connection from {} lost: it ended or the network failed", remote())));
    }
  }

  void OnWriteDone(bool is_written) override {
    StreamConnection::OnWriteDone(is_written);
    if (is_over()) end_call();
  }

  void OnDone() override { retire(); }

  void end_call() override {
    // A peer that no longer reads must not hold up the write, and so the end. Without the lock
    // another thread could finish here, and gRPC take away `call_`, before the cancel.
    note_end();
    const MutexLock lock(finish_mutex_);
    if (is_finished_) return;
    if (is_writing()) {
      call_.TryCancel();
    } else {
      is_finished_ = true;
      Finish(grpc::Status::OK);
    }
  }

  grpc::CallbackServerContext& call_;
  std::shared_ptr<std::atomic<int>> num_inbound_;
  Mutex finish_mutex_;
  bool is_finished_ ATOLL_GUARDED_BY(finish_mutex_) = false;
};

/// Answers a stranger with a reason.
class Refusal final : public grpc::ServerBidiReactor<ByteBuffer, ByteBuffer> {
 public:
  Refusal(grpc::StatusCode code, const std::string& reason) { Finish({code, reason}); }
  void OnDone() override { delete this; }
};

}  // namespace

const char* plane_name(Plane plane) {
  switch (plane) {
    case Plane::kControl:
      return "control";
    case Plane::kBulk:
      return "bulk";
    case Plane::kLane:
      return "lane";
  }
  return "";
}

ConnectionId ConnectionTable::next_id() {
  const MutexLock lock(mutex_);
  return ++last_id_;
}

bool ConnectionTable::add(const std::shared_ptr<Connection>& connection) {
  const MutexLock lock(mutex_);
  return !is_sealed_ && connections_.emplace(connection->id(), connection).second;
}

void ConnectionTable::seal() {
  const MutexLock lock(mutex_);
  is_sealed_ = true;
}

void ConnectionTable::retire(std::shared_ptr<Connection> connection) {
  // One thread for the process, never stopped: so gRPC itself does with its own.
  static Pacer* const undertaker = new Pacer(0, *new SystemClock);
  {
    const MutexLock lock(mutex_);
    connections_.erase(connection->id());
    ++num_retiring_;
  }
  undertaker->call_after({},
                         [table = shared_from_this(), retired = std::move(connection)]() mutable {
                           retired.reset();
                           const MutexLock lock(table->mutex_);
                           --table->num_retiring_;
                           table->changed_.notify_all();
                         });
}

std::shared_ptr<Connection> ConnectionTable::find(ConnectionId id) const {
  const MutexLock lock(mutex_);
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Connection>> ConnectionTable::all() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Connection>> connections;
  for (const auto& [id, connection] : connections_) connections.push_back(connection);
  return connections;
}

void ConnectionTable::note_end() {
  const MutexLock lock(mutex_);  // Else the notice could slip in before the wait.
  changed_.notify_all();
}

void ConnectionTable::wait_for_ends(std::chrono::milliseconds patience) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ATOLL_REQUIRES(mutex_) {
    return std::ranges::all_of(connections_,
                               [](const auto& entry) { return entry.second->is_over(); });
  });
  changed_.wait_for(lock, patience, [&]() ATOLL_REQUIRES(mutex_) {
    return connections_.empty() && num_retiring_ == 0;
  });
}

std::shared_ptr<Connection> start_outbound(const Address& address, Plane plane,
                                           const TransportOptions& options,
                                           std::shared_ptr<ConnectionContext> context,
                                           std::shared_ptr<ConnectionTable> table) {
  auto connection = std::make_shared<OutboundConnection>(plane, address, options, context, table);
  table->add(connection);
  connection->start();
  return connection;
}

LinkService::LinkService(int max_inbound, std::shared_ptr<ConnectionContext> context,
                         std::shared_ptr<ConnectionTable> table)
    : max_inbound_(max_inbound),
      num_inbound_(std::make_shared<std::atomic<int>>(0)),
      context_(std::move(context)),
      table_(std::move(table)) {}

grpc::ServerBidiReactor<ByteBuffer, ByteBuffer>* LinkService::Connect(
    grpc::CallbackServerContext* call) {
  const auto& metadata = call->client_metadata();
  const std::string version = value_of(metadata, kProtocolKey);
  const std::string plane = value_of(metadata, kPlaneKey);
  if (version != kProtocolVersion) {
    return new Refusal(grpc::StatusCode::FAILED_PRECONDITION,
                       fmt::format("this is Atoll protocol {}, the caller's is '{}': use one "
                                   "version of Atoll",
                                   kProtocolVersion, version.substr(0, 20)));
  }
  const auto known = std::ranges::find(kPlanes, plane, plane_name);
  if (known == kPlanes.end()) {
    return new Refusal(grpc::StatusCode::INVALID_ARGUMENT, "the caller names no plane");
  }
  if (*num_inbound_ >= max_inbound_) {
    return new Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED,
                       fmt::format("all {} connections are taken", max_inbound_));
  }
  auto connection =
      std::make_shared<InboundConnection>(*known, *call, context_, table_, num_inbound_);
  if (!table_->add(connection)) {
    return new Refusal(grpc::StatusCode::UNAVAILABLE, "this peer is ending");
  }
  connection->start();
  return connection.get();
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials() {
  return grpc::InsecureChannelCredentials();
}

std::shared_ptr<grpc::ServerCredentials> server_credentials() {
  return grpc::InsecureServerCredentials();
}

}  // namespace atl::net
