#include "atoll/net/grpc_transport.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "atoll/base/mutex.h"
#include "atoll/net/grpc_link.h"
#include "atoll/net/segment.h"

namespace atl::net {
namespace {

/// For what gRPC does after a connection has ended. A write to a peer that no longer reads stays in
/// gRPC until its keepalive gives up; nobody waits for that.
constexpr std::chrono::milliseconds kEndPatience{250};

/// Beside the frames of others: for what striping says of its own.
constexpr size_t kOwnQueueBytes = 4096;

/// gRPC starts once and stays: shutting it down from one of its own threads is not safe. It logs to
/// stderr what we report as events; GRPC_VERBOSITY brings that back.
void start_grpc_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("GRPC_VERBOSITY") == nullptr) {
      gpr_set_log_function([](gpr_log_func_args*) {});
    }
    grpc_init();
  });
}

/// Why nothing can listen there: gRPC only says that it failed.
std::string why_not_bound(const Address& address) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return gai_strerror(error);
  const int probe = ::socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  const int on = 1;
  ::setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool is_bound = probe >= 0 && ::bind(probe, found->ai_addr, found->ai_addrlen) == 0 &&
                        ::listen(probe, 1) == 0;
  const std::string reason = is_bound ? "the server did not start" : std::strerror(errno);
  if (probe >= 0) ::close(probe);
  freeaddrinfo(found);
  return reason;
}

class GrpcTransport final : public Transport {
 public:
  GrpcTransport(TransportOptions options, const Clock& clock, Sink sink)
      : options_(options),
        context_(std::make_shared<ConnectionContext>(
            std::move(sink), options.link_rate_bits_per_s, clock, options.queue_bytes,
            std::min(options.queue_bytes, options.lane_queue_bytes) + kOwnQueueBytes)) {}

  ~GrpcTransport() override {
    context_->muted = true;
    table_->seal();
    for (const auto& connection : table_->all()) close_in_time(connection);
    table_->wait_for_ends(kEndPatience);
    for (const Listener& listener : listeners_) {
      listener.server->Shutdown(gpr_inf_past(GPR_CLOCK_REALTIME));
    }
    listeners_.clear();
    context_->pacer.stop();
    for (const auto& abandoned : table_->all()) abandoned->silence();
  }

  Result<std::string> listen(const std::string& text) override;
  ConnectionId connect(const std::string& text, Plane plane) override;

  Sent send(ConnectionId connection, Bytes frame) override {
    const auto found = table_->find(connection);
    return found ? found->send(std::move(frame)) : Sent::kClosed;
  }
  Sent send_shared(ConnectionId connection, SharedFrame frame) override {
    const auto found = table_->find(connection);
    return found ? found->send(std::move(frame)) : Sent::kClosed;
  }

  void close(ConnectionId connection) override {
    if (const auto found = table_->find(connection)) close_in_time(found);
  }

  Traffic traffic() const override { return {context_->bytes_sent, context_->bytes_received}; }

 private:
  struct Listener {
    std::unique_ptr<LinkService> service;
    std::unique_ptr<grpc::Server> server;
  };

  void close_in_time(const std::shared_ptr<Connection>& connection) {
    connection->close();
    context_->pacer.call_after(options_.close_timeout, [weak = std::weak_ptr(connection)] {
      if (const auto still = weak.lock()) {
        still->end("closed by this side before everything was sent");
      }
    });
  }

  const TransportOptions options_;
  const std::shared_ptr<ConnectionContext> context_;
  std::shared_ptr<ConnectionTable> table_ = std::make_shared<ConnectionTable>();
  Mutex listeners_mutex_;
  std::vector<Listener> listeners_ ATOLL_GUARDED_BY(listeners_mutex_);
};

Result<std::string> GrpcTransport::listen(const std::string& text) {
  const auto address = check_address(text, options_.insecure);
  if (!address) return tl::unexpected(address.error());
  Listener listener{std::make_unique<LinkService>(options_.max_inbound, context_, table_), nullptr};
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address->text(), server_credentials(), &port);
  builder.RegisterService(listener.service.get());
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // A port in use is an error.
  const int keepalive = static_cast<int>(options_.keepalive.count());
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.SetMaxReceiveMessageSize(static_cast<int>(Connection::kMaxPieceBytes) + kSegmentOverhead);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || port == 0) {
    return failure(
        fmt::format("cannot listen on {}: {}", address->text(), why_not_bound(*address)));
  }
  const MutexLock lock(listeners_mutex_);
  listeners_.push_back(std::move(listener));
  return Address{address->host, static_cast<uint16_t>(port)}.text();
}

ConnectionId GrpcTransport::connect(const std::string& text, Plane plane) {
  const auto address = check_address(text, options_.insecure);
  if (!address) {
    const ConnectionId id = table_->next_id();
    context_->pacer.call_after({}, [this, id, reason = address.error().message] {
      if (!context_->muted) context_->sink(Lost{id, reason});
    });
    return id;
  }
  const auto connection = start_outbound(*address, plane, options_, context_, table_);
  context_->pacer.call_after(options_.connect_timeout, [weak = std::weak_ptr(connection)] {
    const auto still = weak.lock();
    if (still && still->is_opening()) {
      still->end(fmt::format("cannot connect to {}: no answer", still->remote()));
    }
  });
  return connection->id();
}

}  // namespace

std::unique_ptr<Transport> make_grpc_transport(TransportOptions options, const Clock& clock,
                                               Transport::Sink sink) {
  start_grpc_once();
  return make_striped_transport(
      {.num_lanes = options.num_lanes},
      [&](Transport::Sink inner_sink) {
        return std::make_unique<GrpcTransport>(options, clock, std::move(inner_sink));
      },
      clock, std::move(sink));
}

}  // namespace atl::net
