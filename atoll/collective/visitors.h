#pragma once
// Inbound connections that have not said which member they are, or say it before this member has
// heard of it. What they ask for meanwhile waits. Pure; it reads what strangers send, and keeps
// little of it.
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

class Visitors {
 public:
  static constexpr size_t kMost = 1024;
  static constexpr size_t kMostEarly = 64;  // Requests of one.
  static constexpr Duration kPatience = std::chrono::seconds(10);
  /// For the view that has the member which it says it is.
  static constexpr Duration kKnownPatience = std::chrono::seconds(60);

  /// False: there are too many.
  [[nodiscard]] bool admit(net::ConnectionId connection,
                           const std::optional<identity::CertificateFacts>& certificate, Time now,
                           net::Way way = net::Way::kDirect) {
    if (visitors_.size() >= kMost) return false;
    if (certificate && certificate->peer.role != identity::Role::kIsland) return false;
    visitors_[connection] = {.certificate = certificate, .way = way, .since = now};
    return true;
  }
  bool contains(net::ConnectionId connection) const { return visitors_.contains(connection); }
  /// Of one that is here.
  const std::optional<identity::CertificateFacts>& certificate(net::ConnectionId connection) const {
    return visitors_.at(connection).certificate;
  }
  net::Way way(net::ConnectionId connection) const { return visitors_.at(connection).way; }
  /// Of one that is here. False: it must not say this.
  [[nodiscard]] bool hear(net::ConnectionId connection, const swarm::Message& message) {
    Visitor& visitor = visitors_.at(connection);
    const auto* const fetch = std::get_if<swarm::Fetch>(&message);
    if (visitor.hello && fetch != nullptr && visitor.early.size() < kMostEarly) {
      visitor.early.push_back(*fetch);
      return true;
    }
    const auto* const hello = std::get_if<swarm::PeerHello>(&message);
    if (hello == nullptr || visitor.hello) return false;
    visitor.hello = *hello;
    return true;
  }
  /// Those that have said which member they are.
  std::vector<std::pair<net::ConnectionId, swarm::PeerHello>> known() const {
    std::vector<std::pair<net::ConnectionId, swarm::PeerHello>> out;
    for (const auto& [connection, visitor] : visitors_) {
      if (visitor.hello) out.emplace_back(connection, *visitor.hello);
    }
    return out;
  }
  /// Those that have been silent for too long.
  std::vector<net::ConnectionId> mute(Time now) const {
    std::vector<net::ConnectionId> out;
    for (const auto& [connection, visitor] : visitors_) {
      const Duration patience = visitor.hello ? kKnownPatience : kPatience;
      if (now - visitor.since > patience) out.push_back(connection);
    }
    return out;
  }
  /// It is a visitor no more; what it asked for.
  std::vector<swarm::Fetch> take(net::ConnectionId connection) {
    auto visitor = visitors_.extract(connection);
    return visitor.empty() ? std::vector<swarm::Fetch>() : std::move(visitor.mapped().early);
  }
  /// All that are here, which are none any more.
  std::vector<net::ConnectionId> take_all() {
    std::vector<net::ConnectionId> out;
    for (const auto& [connection, visitor] : std::exchange(visitors_, {})) {
      out.push_back(connection);
    }
    return out;
  }

 private:
  struct Visitor {
    std::optional<identity::CertificateFacts> certificate;
    net::Way way = net::Way::kDirect;
    std::optional<swarm::PeerHello> hello;
    std::vector<swarm::Fetch> early;
    Time since{};
  };

  std::map<net::ConnectionId, Visitor> visitors_;
};

}  // namespace atl::collective
