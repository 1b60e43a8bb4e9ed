#pragma once
// For tests: servers and gateways around a directory, in virtual time. Servers load what they are
// told to, offer leases, fall silent, are killed, lose their connections; the coordinator is
// started anew. What must hold at all times is checked on the way.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "atoll/base/random.h"
#include "atoll/chain/directory.h"
#include "atoll/chain/lease.h"
#include "atoll/testing/placement_bound.h"

namespace atl::chain {

class SimulatedServers {
 public:
  static constexpr Duration kStep = std::chrono::milliseconds(50);

  SimulatedServers(uint64_t seed, int32_t num_layers, int32_t most_layers_each)
      : seed_(seed), num_layers_(num_layers), most_layers_each_(most_layers_each) {
    for (int i = 0; i < 3; ++i) gateways_.push_back({});
  }

  double draw() { return random_uniform(seed_, 2, ++num_draws_); }
  int32_t draw(int32_t first, int32_t last) {
    return first + static_cast<int32_t>(draw() * (last - first + 1));
  }

  void join() {
    Server server;
    server.lease = {.name = fmt::format("s{:03}", ++num_servers_),
                    .address = fmt::format("host{}:7000", num_servers_),
                    .model = "m",
                    .digest = "d",
                    .num_layers = num_layers_,
                    .max_layers = draw(1, most_layers_each_),
                    .layers_per_s = std::exp2(4 * draw()),
                    .num_positions = 1000};
    server.next_offer = now_;
    servers_[server.lease.name] = server;
    changed_at_ = now_;
  }
  /// One of those that are there.
  void kill(bool silently) {
    if (servers_.empty()) return;
    const auto victim = std::next(servers_.begin(), draw(0, num_alive() - 1));
    if (!silently) hang_up(victim->second);
    movers_.erase(victim->first);
    servers_.erase(victim);
    changed_at_ = now_;
  }
  void lose_connection() {
    if (servers_.empty()) return;
    Server& server = std::next(servers_.begin(), draw(0, num_alive() - 1))->second;
    hang_up(server);
    server.next_offer = now_ + std::chrono::milliseconds(250);
  }
  void restart_coordinator() {
    directory_ = Directory(now_);
    for (auto& [name, server] : servers_) {
      server.connection = 0;
      server.next_offer = now_ + duration_of(2 * draw());
    }
    for (Gateway& gateway : gateways_) gateway = {.servers = gateway.servers};
    movers_.clear();  // The new one does not know who drains, and why.
  }

  void run(Duration duration) {
    for (const Time end = now_ + duration; now_ < end; now_ += kStep) step();
  }

  int num_alive() const { return static_cast<int>(servers_.size()); }
  int num_moves() const { return num_moves_; }
  Time now() const { return now_; }
  const std::string& fault() const { return fault_; }
  int64_t room() const {
    int64_t room = 0;
    for (const auto& [name, server] : servers_) {
      room += std::min(server.lease.max_layers, num_layers_);
    }
    return room;
  }
  /// What is, not what the directory believes.
  std::vector<Host> hosts() const {
    std::vector<Host> hosts;
    for (const auto& [name, server] : servers_) {
      const bool serves = server.lease.state == LeaseState::kServing;
      hosts.push_back({.speed = server.lease.layers_per_s,
                       .max_layers = server.lease.max_layers,
                       .layers = serves ? server.lease.layers : Span{},
                       .serves = serves});
    }
    return hosts;
  }
  bool is_whole() const { return num_gaps(flow_of(hosts(), num_layers_)) == 0; }
  double share_of_bound() const {
    return bottleneck(flow_of(hosts(), num_layers_)) / bottleneck_bound(hosts(), num_layers_);
  }
  bool watchers_know() const {
    std::vector<Lease> truth;
    for (const auto& [name, server] : servers_) truth.push_back(server.lease);
    return std::ranges::all_of(gateways_,
                               [&](const Gateway& gateway) { return gateway.servers == truth; });
  }

 private:
  struct Server {
    Lease lease;
    Directory::Connection connection = 0;
    Time next_offer{};
    std::optional<Span> wanted;
    Time ready{};  // With what it does: draining, loading.
  };
  struct Gateway {
    std::vector<Lease> servers;
    Directory::Connection connection = 0;
    Time next_ping{};
  };

  void hang_up(Server& server) {
    if (server.connection != 0) act(directory_.lost(server.connection, now_));
    server.connection = 0;
  }

  void step() {
    for (auto& [name, server] : servers_) live(name, server);
    for (Gateway& gateway : gateways_) {
      if (now_ < gateway.next_ping) continue;
      gateway.next_ping = now_ + std::chrono::seconds(1);
      if (gateway.connection == 0) {
        gateway.connection = ++last_connection_;
        act(directory_.opened(gateway.connection, {}, now_));
        act(directory_.received(gateway.connection, Watch{"d"}, now_));
      }
      act(directory_.received(gateway.connection, Ping{1}, now_));
    }
    if (now_ >= directory_.next_deadline()) act(directory_.tick(now_));
  }

  void live(const std::string& name, Server& server) {
    Lease& lease = server.lease;
    const LeaseState before = lease.state;
    if (lease.state == LeaseState::kDraining && now_ >= server.ready) {
      lease.state = LeaseState::kLoading;
      lease.layers = *server.wanted;
      server.ready = now_ + duration_of(1 + 3 * draw());
    } else if (lease.state == LeaseState::kLoading && now_ >= server.ready) {
      lease.state = LeaseState::kServing;
      server.wanted.reset();
      movers_.erase(name);
    }
    if (now_ < server.next_offer && lease.state == before) return;
    if (server.connection == 0) {
      if (now_ < server.next_offer) return;
      server.connection = ++last_connection_;
      act(directory_.opened(server.connection, {}, now_));
    }
    server.next_offer = now_ + kLeaseRenewal;
    act(directory_.received(server.connection, Offer{lease}, now_));
  }

  void act(Directory::Actions actions) {
    for (auto& action : actions) {
      auto* send = std::get_if<Directory::Send>(&action);
      if (send == nullptr) continue;
      if (auto* servers = std::get_if<Servers>(&send->message)) {
        for (Gateway& gateway : gateways_) {
          if (gateway.connection == send->to) gateway.servers = servers->leases;
        }
      } else if (const auto* place = std::get_if<Place>(&send->message)) {
        obey(send->to, place->layers);
      } else if (const auto* refused = std::get_if<Refused>(&send->message)) {
        fault_ = "refused: " + refused->reason;
      }
    }
  }

  void obey(Directory::Connection connection, const Span& layers) {
    const auto found = std::ranges::find_if(
        servers_, [&](const auto& entry) { return entry.second.connection == connection; });
    if (found == servers_.end()) return;
    auto& [name, server] = *found;
    Lease& lease = server.lease;
    if (const auto fault = fault_of(layers, lease); !fault.empty()) fault_ = fault;
    if (server.wanted == layers) return;  // Said again.
    server.wanted = layers;
    if (lease.state == LeaseState::kWaiting) {
      lease.state = LeaseState::kLoading;
      lease.layers = layers;
      server.ready = now_ + duration_of(1 + 3 * draw());
    } else {
      check_move(name, lease);
      num_moves_ += 1;
      lease.state = LeaseState::kDraining;
      server.ready = now_ + std::chrono::milliseconds(500);
    }
  }

  /// At its begin.
  void check_move(const std::string& name, const Lease& lease) {
    movers_.insert(name);
    if (movers_.size() > 1) fault_ = fmt::format("{} servers move at once", movers_.size());
    if (lease.state != LeaseState::kServing) fault_ = name + " moves and serves nothing";
    std::vector<int> serve(static_cast<size_t>(num_layers_));
    std::vector<int> have(serve.size());
    for (const Lease& other : directory_.leases()) {
      for (int32_t layer = other.layers.begin; layer < other.layers.end; ++layer) {
        have[static_cast<size_t>(layer)] += other.state != LeaseState::kDraining;
        serve[static_cast<size_t>(layer)] +=
            other.name != name && other.state == LeaseState::kServing;
      }
    }
    const bool is_usable = std::ranges::count(have, 0) == 0;
    for (int32_t layer = lease.layers.begin; layer < lease.layers.end; ++layer) {
      if (is_usable && serve[static_cast<size_t>(layer)] == 0) {
        fault_ = fmt::format("{} leaves layer {}, which no other serves", name, layer);
      }
    }
  }

  const uint64_t seed_;
  const int32_t num_layers_;
  const int32_t most_layers_each_;
  uint64_t num_draws_ = 0;
  int num_servers_ = 0;
  int num_moves_ = 0;
  Time now_{};
  Time changed_at_{};
  Directory directory_{Time{}};
  Directory::Connection last_connection_ = 0;
  std::map<std::string, Server> servers_;
  std::vector<Gateway> gateways_;
  std::set<std::string> movers_;
  std::string fault_;
};

}  // namespace atl::chain
