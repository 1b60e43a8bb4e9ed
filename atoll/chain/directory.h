#pragma once
// Who serves which layers: a coordinator's directory. Servers offer leases again and again, are
// told which layers to serve (placer.h), and are forgotten when they fall silent; gateways watch.
// Nothing of it is kept: one that begins anew hears for a few seconds before it says anything, and
// knows again what is. A pure state machine: events and the time go in, actions come out.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/chain/messages.h"
#include "atoll/chain/placer.h"
#include "atoll/identity/peer.h"
#include "atoll/net/transport.h"

namespace atl::chain {

/// Not thread-safe. Every method may return actions; do them in order.
class Directory {
 public:
  /// From its start on; longer than a DirectoryPost's longest pause.
  static constexpr Duration kHearing = std::chrono::seconds(3);
  /// A server whose connection is lost may come back within this.
  static constexpr Duration kLostGrace = std::chrono::seconds(1);
  /// Who says nothing for so long is gone.
  static constexpr Duration kSilence = std::chrono::seconds(10);
  /// Watchers are told of loads and speeds so often, of what matters for routes at once; but
  /// changes that come together are told together.
  static constexpr Duration kTelling = std::chrono::seconds(1);
  static constexpr Duration kTogether = std::chrono::milliseconds(50);
  static constexpr size_t kMostServers =
      512;  // All leases fit in one frame, however long they are.
  static constexpr size_t kMostCallers = 4096;
  static constexpr size_t kMostReports = 64;  // Of one gateway.

  using Connection = net::ConnectionId;
  struct Send {
    Connection to = 0;
    Message message;
  };
  /// What was sent before is delivered, then the connection ends. It is not heard any more.
  struct Close {
    Connection connection = 0;
  };
  struct Log {
    Event event;  // Of events.h.
  };
  using Action = std::variant<Send, Close, Log>;
  using Actions = std::vector<Action>;

  explicit Directory(Time now) : begun_(now) {}

  /// `peer`: what its certificate says of it; nothing in the clear.
  Actions opened(Connection connection, std::optional<identity::PeerId> peer, Time now);
  Actions received(Connection connection, const Message& message, Time now);
  /// It sent what is no message.
  Actions garbled(Connection connection, const std::string& reason, Time now);
  Actions lost(Connection connection, Time now);
  /// Of an encrypted run: the newest list of who is no member any more, for all who are.
  Actions tell_revocations(Bytes signed_list);
  /// Call at next_deadline() or later.
  Actions tick(Time now);
  Time next_deadline() const;

  /// All that hold a lease, by name.
  std::vector<Lease> leases() const;

 private:
  struct Caller {
    std::optional<identity::PeerId> peer;
    Time heard{};
    std::optional<std::string> watches;          // A digest; empty: all models.
    std::string server;                          // Whose lease it offers; empty: none so far.
    std::map<std::string, std::string> reports;  // Of liars, by name: why.
  };
  struct Server {
    Seat seat;
    Connection connection = 0;  // 0: lost.
    Time ends{};                // Of its lease.
  };
  struct Model {
    std::string name;
    int32_t num_layers = 0;
    Placer placer;
    bool is_whole = false;
  };

  bool has_begun(Time now) const { return now - begun_ >= kHearing; }
  void offered(Connection connection, const Lease& lease, Time now);
  /// Why that caller may not offer it; empty when it may.
  std::string objection_to(Connection connection, const Lease& lease) const;
  void come(Connection connection, const Lease& lease, Time now);
  void renew(Connection connection, Server& server, const Lease& lease, Time now);
  void reported(Connection connection, const Report& report, Time now);
  /// Why that server is shut out: most gateways of its model that are here report it. Else empty.
  std::string bar_to(const std::string& name, const std::string& digest) const;
  void place(Time now);
  void look_at(Model& model, const Seats& seats);
  void refuse(Connection connection, const std::string& reason, Time now);
  void forget(Connection connection, Time now);
  void remove(const std::string& name, const std::string& reason, Time now);
  /// Watchers of that model are to be told.
  void changed(const std::string& digest, bool at_once, Time now);
  void tell_watchers(Time now);
  void tell(Connection connection, const Caller& caller);
  Seats seats_of(const std::string& digest);
  void log(Event event) { actions_.emplace_back(Log{std::move(event)}); }
  Actions take() { return std::exchange(actions_, {}); }

  Time begun_;
  Bytes revocations_;  // Signed; empty: there are none.
  std::map<Connection, Caller> callers_;
  std::map<std::string, Server> servers_;  // By name.
  std::map<std::string, Model> models_;    // By digest.
  std::set<std::string> changed_;          // files_of() digests.
  Time tell_at_ = Time::max();
  Time told_at_{};
  Time next_look_{};  // At leases, newcomers and so on.
  Actions actions_;
};

}  // namespace atl::chain
