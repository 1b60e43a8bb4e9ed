// A conductor's servers: which it calls, watches and blames, and what is known of lines to them.
#include <algorithm>
#include <utility>

#include "atoll/chain/conductor.h"
#include "atoll/chain/lease.h"

namespace atl::chain {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(250);
constexpr Duration kLongestPause = std::chrono::seconds(30);
/// A server that hangs and cannot be replaced is waited for so long.
constexpr Duration kHangPatience = std::chrono::seconds(10);
constexpr Duration kLate = 4 * Conductor::kTick;
constexpr double kUnknownDelay = 0.02;

}  // namespace

void Conductor::lengthen(Duration& pause, Duration first, Duration longest) {
  pause = pause == Duration{} ? first : std::min<Duration>(2 * pause, longest);
}

bool Conductor::is_usable(const Server& server, Time now) const {
  return server.is_ready && !server.hangs && now >= server.bad_until &&
         !liars_.contains(server.lease.name);
}

bool Conductor::is_usable(const std::string& address, Time now) const {
  const auto found = servers_.find(address);
  return found != servers_.end() && is_usable(found->second, now);
}

bool Conductor::leaves(const std::string& address, Time now) const {
  const auto found = servers_.find(address);
  return found != servers_.end() &&
         (now < found->second.leaves_until || found->second.lease.state == LeaseState::kDraining);
}

/// Those with memory for so many positions, if nothing else were there.
std::vector<Candidate> Conductor::candidates(int64_t num_positions, Time now) const {
  std::vector<Candidate> found;
  for (const auto& [address, server] : servers_) {
    if (!server.is_listed || !is_usable(server, now) || leaves(address, now)) continue;
    const int64_t room = server.lease.num_positions;  // 0: unknown.
    if (room > 0 && room < num_positions) continue;
    found.push_back({.address = address,
                     .layers = server.lease.layers,
                     .layers_per_s = server.lease.layers_per_s,
                     .token_layers_per_s = server.lease.token_layers_per_s,
                     .num_sessions = std::max(server.num_sessions, server.lease.num_sessions),
                     .is_full = room > 0 && server.lease.num_free < num_positions,
                     .has_head = server.lease.has_head});
  }
  return found;
}

/// Between servers by what one of them has measured, else by way of the gateway.
double Conductor::delay(const std::string& from, const std::string& to, Time now) const {
  const auto cut = cut_links_.find({from, to});
  if (cut != cut_links_.end() && now < cut->second) return kCutDelay;
  double sum = 0;
  for (const auto& [near, far] : {std::pair(from, to), std::pair(to, from)}) {
    const auto server = servers_.find(near);
    if (server == servers_.end()) continue;
    const auto& links = server->second.lease.links;
    const auto link = std::ranges::find(links, far, &Link::address);
    if (link != links.end()) return link->round_trip_ms / 2e3;
    const Duration measured = server->second.watch.round_trip();
    sum += measured == Duration{} ? kUnknownDelay : seconds(measured) / 2;
  }
  return sum;
}

void Conductor::call(const std::string& address, Server& server) {
  server.is_called = true;
  actions_.emplace_back(Connect{address});
}

void Conductor::servers(const std::vector<Lease>& leases, Time now) {
  for (auto& [address, server] : servers_) server.is_listed = false;
  other_types_.clear();
  for (const Lease& lease : leases) {
    if (lease.digest != options_.digest) other_types_.insert(type_of(lease.digest));
    if (lease.digest != options_.digest || lease.num_layers != options_.num_layers) continue;
    if (liars_.contains(lease.name)) continue;
    if (lease.state != LeaseState::kServing && lease.state != LeaseState::kDraining) continue;
    Server& server = servers_[lease.address];
    const Span layers = server.is_ready ? server.lease.layers : lease.layers;
    server.lease = lease;
    server.lease.layers = layers;
    server.is_listed = lease.state == LeaseState::kServing;
    if (!server.is_called && now >= server.retry_at) call(lease.address, server);
  }
  std::erase_if(servers_, [](const auto& entry) {
    return !entry.second.is_listed && !entry.second.is_called;
  });
  find_chains(now);
}

void Conductor::greeted(const std::string& address, const Greeted& message, Time now) {
  const auto found = servers_.find(address);
  if (found == servers_.end()) return;
  Server& server = found->second;
  server.lease.layers = message.layers;
  server.is_ready = true;
  server.leaves_until = {};
  server.greeted = now;
  server.pause = {};
  server.watch = {};
  find_chains(now);
}

void Conductor::lost(const std::string& address, const std::string& /*reason*/, Time now) {
  const auto found = servers_.find(address);
  if (found == servers_.end()) return;
  Server& server = found->second;
  server.is_called = server.is_ready = server.hangs = false;
  lengthen(server.pause, kFirstPause, kLongestPause);
  server.retry_at = now + server.pause;
  replace(address, "lost", now);
}

void Conductor::pong(const std::string& address, const Pong& message, Time now) {
  const auto found = servers_.find(address);
  if (found == servers_.end()) return;
  found->second.watch.hear(message, now);
}

void Conductor::watch_servers(Time now) {
  // After a stall of its own a gateway has answers that it has not heard yet.
  const bool is_late = now - std::exchange(last_tick_, now) > kLate;
  std::vector<std::string> hung;
  for (auto& [address, server] : servers_) {
    if (!server.is_called && server.is_listed && now >= server.retry_at) call(address, server);
    if (!server.is_ready) continue;
    if (server.num_sessions > 0 && leaves(address, now)) move_from(address, now);
    if (server.watch.is_due(now)) actions_.emplace_back(Say{address, server.watch.ping(now)});
    if (is_late) continue;
    const bool hangs = server.watch.hangs(now);
    if (hangs && !server.hangs) {
      server.hangs_since = now;
      hung.push_back(address);
    }
    server.hangs = hangs;
    if (hangs && server.num_sessions > 0 && now - server.hangs_since > kHangPatience) {
      actions_.emplace_back(HangUp{address});  // lost() follows.
      server.hangs_since = now;
    }
  }
  for (const std::string& address : hung) replace(address, "hung", now);
}

void Conductor::blame(const std::string& address, Time now) {
  const auto known = servers_.find(address);
  if (known == servers_.end()) return;
  lengthen(known->second.bad_pause, kFirstPause, kLongestPause);
  known->second.bad_until = now + known->second.bad_pause;
  replace(std::string(address), "damaged", now);
}

}  // namespace atl::chain
