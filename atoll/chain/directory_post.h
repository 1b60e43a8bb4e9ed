#pragma once
// A server's or a gateway's place at its coordinator's directory: it offers the server's lease
// again and again, hears which layers it is to serve, and who serves others. It comes back when the
// coordinator does; until then what was heard last holds. Pure, but for the transport that it is
// given.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/chain/messages.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/unanswered.h"

namespace atl::chain {

struct DirectoryPostOptions {
  std::string coordinator;  // HOST:PORT
  std::string authority;    // The fingerprint of the run's, as a member of which it calls.
  EventSink tell;           // Of events.h. May be empty.
  /// The digest of the model whose servers are heard of, in any type; empty: of all models. None:
  /// it hears of no servers.
  std::optional<std::string> watches = {};
  /// Hears the authority's signed list of who is no member of the run any more.
  std::function<void(const Bytes&)> on_revocations = [](const Bytes&) {};
};

/// Not thread-safe. The transport must outlive it.
class DirectoryPost {
 public:
  static constexpr Duration kFirstPause = std::chrono::milliseconds(250);
  /// A directory that begins anew waits longer than this before it decides anything.
  static constexpr Duration kLongestPause = std::chrono::seconds(2);
  /// After so long without any answer its user is told that nobody is there.
  static constexpr Duration kUnanswered = swarm::kUnanswered;
  static constexpr Duration kToldAgain = std::chrono::seconds(10);
  /// A coordinator that says nothing for so long is called anew.
  static constexpr Duration kPatience = std::chrono::seconds(6);

  DirectoryPost(DirectoryPostOptions options, net::Transport& transport);

  void handle(const net::Event& event, Time now);
  /// Call at next_deadline() or later, and once to begin.
  void tick(Time now);
  Time next_deadline() const { return due_; }
  /// Whether an event of that connection is for handle().
  bool owns(net::ConnectionId connection) const {
    return connection != 0 && connection == connection_;
  }

  /// For servers: what is offered from now on, at once where its state or layers are others. Before
  /// the first one a post that does not watch calls nobody.
  void set_lease(Lease lease, Time now);
  /// For gateways: the directory is told, also by the connections to come.
  void report(const std::string& server, const std::string& reason);
  /// The layers that the directory wants it to serve, the newest, once. They are some of the
  /// model's and not more than the lease has memory for.
  std::optional<Span> take_place();

  /// By name, of the model that is watched. Empty until the first were heard.
  const std::vector<Lease>& servers() const { return servers_; }
  /// Those of them that compute in this type as well: others are another model.
  std::vector<Lease> servers_of(const std::string& digest) const;
  /// Rises with each list that was heard; 0: none was.
  uint64_t servers_version() const { return servers_version_; }
  bool is_connected() const { return is_connected_; }
  /// A coordinator has taken what was offered, or told what was asked: now, or earlier.
  bool has_joined() const { return has_joined_; }
  /// Why the coordinator took nothing when it was called last. It may another time.
  const std::optional<std::string>& refused() const { return refused_; }

 private:
  /// The coordinator, and the user knows.
  struct Missed {
    std::string reason;
    Time told{};
  };

  void call(Time now);
  void beat(Time now);
  void say(const Message& message);
  void hear(const Bytes& frame);
  void lose(const std::string& reason, Time now);
  void hang_up(const std::string& reason, Time now);
  void miss(const std::string& reason, Time now);
  void tell(const Event& event) const;

  const DirectoryPostOptions options_;
  net::Transport& transport_;
  net::ConnectionId connection_ = 0;  // 0: none.
  bool is_connected_ = false;
  bool has_joined_ = false;
  std::optional<Missed> missed_;
  std::optional<Time> first_call_;
  Time due_{};
  Time heard_{};  // When it said something last, or was called.
  Duration pause_ = kFirstPause;
  uint64_t num_pings_ = 0;
  std::optional<Lease> lease_;
  std::optional<Span> place_;
  std::vector<Report> reports_;
  std::vector<Lease> servers_;
  uint64_t servers_version_ = 0;
  std::optional<std::string> refused_;
};

}  // namespace atl::chain
