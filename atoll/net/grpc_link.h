#pragma once
// The two ends of a gRPC stream as connections. Private to atoll/net: this header brings in gRPC.
//
// Lifetime: an object keeps itself alive until gRPC's OnDone, then leaves the table.
#include <grpcpp/grpcpp.h>

#include <map>

#include "atoll.grpc.pb.h"
#include "atoll/base/mutex.h"
#include "atoll/net/address.h"
#include "atoll/net/connection.h"
#include "atoll/net/grpc_transport.h"

namespace atl::net {

constexpr const char* kProtocolKey = "atoll-protocol";
constexpr const char* kPlaneKey = "atoll-plane";
const char* plane_name(Plane plane);
/// Raised with every change that older peers would misread.
constexpr const char* kProtocolVersion = "2";

/// The live connections. Thread-safe.
class ConnectionTable : public std::enable_shared_from_this<ConnectionTable> {
 public:
  ConnectionId next_id();
  /// False once sealed.
  bool add(const std::shared_ptr<Connection>& connection);
  /// Takes out a connection whose call is over, and destroys it on a thread for that: not on one of
  /// gRPC's, for with the last channel go those threads, and none can wait for its own end.
  void retire(std::shared_ptr<Connection> connection);
  std::shared_ptr<Connection> find(ConnectionId id) const;

  /// Nothing is added from here on.
  void seal();
  std::vector<std::shared_ptr<Connection>> all() const;
  /// A connection has ended (its call may not be over yet).
  void note_end();
  /// Waits until all connections have ended, then at most `patience` until all are destroyed.
  void wait_for_ends(std::chrono::milliseconds patience);

 private:
  mutable Mutex mutex_;
  Condition changed_;
  ConnectionId last_id_ ATOLL_GUARDED_BY(mutex_) = 0;
  bool is_sealed_ ATOLL_GUARDED_BY(mutex_) = false;
  int num_retiring_ ATOLL_GUARDED_BY(mutex_) = 0;
  std::map<ConnectionId, std::shared_ptr<Connection>> connections_ ATOLL_GUARDED_BY(mutex_);
};

/// Starts to connect.
std::shared_ptr<Connection> start_outbound(const Address& address, Plane plane,
                                           const TransportOptions& options,
                                           std::shared_ptr<ConnectionContext> context,
                                           std::shared_ptr<ConnectionTable> table);

/// What a listening transport offers.
class LinkService final : public wire::Link::WithRawCallbackMethod_Connect<wire::Link::Service> {
 public:
  LinkService(int max_inbound, std::shared_ptr<ConnectionContext> context,
              std::shared_ptr<ConnectionTable> table);
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Connect(
      grpc::CallbackServerContext* call) override;

 private:
  const int max_inbound_;
  std::shared_ptr<std::atomic<int>> num_inbound_;
  const std::shared_ptr<ConnectionContext> context_;
  std::shared_ptr<ConnectionTable> table_;
};

/// Where TLS will come in: what proves who we are and whom we talk to.
std::shared_ptr<grpc::ChannelCredentials> channel_credentials();
std::shared_ptr<grpc::ServerCredentials> server_credentials();

}  // namespace atl::net
