#include "atoll/sim/sim_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "atoll/base/check.h"
#include "atoll/base/random.h"
#include "atoll/net/address.h"
#include "atoll/sim/line.h"

namespace atl::sim {

using net::ConnectionId;
using net::Plane;
using net::Sent;

struct SimNetwork::Link {
  LinkOptions options;
  bool is_cut = false;
  uint64_t num_cuts = 0;
  Line<Time, Duration> line;
};

struct SimNetwork::End {
  ConnectionId id = 0;
  Host* host = nullptr;  // Null once the process is gone.
  std::string local;
  std::string remote;
  Plane plane = Plane::kControl;
  std::weak_ptr<End> peer;
  bool opened = false;
  bool closing = false;
  bool over = false;     // Lost was reported, or there is nobody to report to.
  bool refused = false;  // A send was kFull: Writable is owed.
  bool died = false;     // Killed: what has not left never will.
  size_t queued_bytes = 0;
  net::LinkEstimator estimator;            // Of what this end sent; bulk only.
  Time last_arrival{};                     // Of what this end sent: order within the connection.
  std::deque<Bytes> unsent;                // Sent before Opened.
  std::deque<std::shared_ptr<Item>> held;  // For this end, waiting behind a cut.
};

struct SimNetwork::Item {
  std::shared_ptr<End> from;
  Bytes frame;
  bool last = false;      // No frame: the connection ends here.
  bool breaks = false;    // The seed chose this frame to break the connection.
  bool departed = false;  // No longer counted in queued_bytes.
  net::LinkEstimator::Mark mark{};
};

class SimNetwork::Host final : public net::Transport {
 public:
  Host(SimNetwork& network, std::string name, Sink sink)
      : network_(network), name_(std::move(name)), sink_(std::move(sink)) {
    network_.hosts_.push_back(this);
  }

  ~Host() override {
    const auto ends = ends_;
    for (const auto& [id, end] : ends) network_.begin_close(end);
    detach();
    std::erase(network_.hosts_, this);
  }

  Result<std::string> listen(const std::string& address) override {
    const auto parsed = net::parse_address(address);
    if (!parsed) return tl::unexpected(parsed.error());
    if (dead_) return failure(name_ + " has crashed");
    const uint16_t port = parsed->port != 0 ? parsed->port : ++network_.last_port_;
    std::string bound = fmt::format("{}:{}", name_, port);
    if (!network_.listeners_.emplace(bound, this).second) {
      return failure(fmt::format("cannot listen on {}: address already in use", bound));
    }
    return bound;
  }

  ConnectionId connect(const std::string& address, Plane plane) override;
  ConnectionId meet(const net::Meeting& meeting, Plane plane) override {
    auto end = add_end(meeting.relay, plane);
    const std::string reason = fmt::format("cannot meet at {}: nobody relays here", meeting.relay);
    network_.queue_.after({}, [end, reason] { SimNetwork::lose(*end, reason); });
    return end->id;
  }

  Sent send(ConnectionId connection, Bytes frame) override {
    ATOLL_CHECK(frame.size() <= net::kMaxFrameBytes);
    const auto found = ends_.find(connection);
    if (found == ends_.end() || found->second->closing) return Sent::kClosed;
    End& end = *found->second;
    if (end.queued_bytes > 0 && end.queued_bytes + frame.size() > network_.options_.queue_bytes) {
      end.refused = true;
      return Sent::kFull;
    }
    end.queued_bytes += frame.size();
    traffic_.bytes_sent += static_cast<int64_t>(frame.size());
    if (network_.tamper_) network_.tamper_(end.local, end.remote, frame);
    if (end.opened) {
      network_.transmit(found->second, std::move(frame), /*last=*/false);
    } else {
      end.unsent.push_back(std::move(frame));
    }
    return Sent::kAccepted;
  }

  void close(ConnectionId connection) override {
    const auto found = ends_.find(connection);
    if (found != ends_.end()) network_.begin_close(std::shared_ptr(found->second));
  }

  net::Traffic traffic() const override { return traffic_; }

  net::LinkEstimate estimate(ConnectionId connection) const override {
    const auto found = ends_.find(connection);
    if (found == ends_.end()) return {};
    return found->second->estimator.estimate();
  }

  const std::string& name() const { return name_; }
  const std::map<ConnectionId, std::shared_ptr<End>>& ends() const { return ends_; }

  std::shared_ptr<End> add_end(const std::string& remote, Plane plane) {
    auto end = std::make_shared<End>();
    end->id = ++network_.num_connections_;
    end->host = this;
    end->local = name_;
    end->remote = remote;
    end->plane = plane;
    ends_.emplace(end->id, end);
    return end;
  }

  void emit(net::Event event) { sink_(std::move(event)); }

  void receive(ConnectionId connection, Bytes frame) {
    traffic_.bytes_received += static_cast<int64_t>(frame.size());
    sink_(net::Received{connection, std::move(frame)});
  }

  void report_loss(ConnectionId connection, const std::string& reason) {
    ends_.erase(connection);
    sink_(net::Lost{connection, reason});
  }

  /// The process is gone: no events reach it and it can do nothing.
  void detach() {
    std::erase_if(network_.listeners_, [&](const auto& entry) { return entry.second == this; });
    for (const auto& [id, end] : ends_) {
      end->host = nullptr;
      end->over = true;
      end->held.clear();
    }
    ends_.clear();
  }

  void crash() {
    const auto ends = ends_;
    for (const auto& [id, end] : ends) {
      end->died = true;
      network_.break_far_side(*end, fmt::format("connection to {} reset", name_));
    }
    detach();
    dead_ = true;
  }

 private:
  SimNetwork& network_;
  std::string name_;
  Sink sink_;
  bool dead_ = false;
  net::Traffic traffic_;
  std::map<ConnectionId, std::shared_ptr<End>> ends_;
};

void SimNetwork::lose(End& end, const std::string& reason) {
  if (end.over) return;
  end.over = true;
  end.closing = true;
  end.held.clear();
  if (end.host != nullptr) end.host->report_loss(end.id, reason);
}

ConnectionId SimNetwork::Host::connect(const std::string& address, Plane plane) {
  const auto parsed = net::parse_address(address);
  auto end = add_end(parsed ? parsed->host : address, plane);
  EventQueue& queue = network_.queue_;
  if (!parsed || dead_) {
    const std::string reason = dead_ ? name_ + " has crashed" : parsed.error().message;
    queue.after({}, [end, reason] { SimNetwork::lose(*end, reason); });
    return end->id;
  }
  queue.after(network_.options_.connect_timeout, [end, address, &network = network_] {
    if (end->opened || end->over) return;
    SimNetwork::lose(*end, fmt::format("cannot connect to {}: no answer", address));
    network.break_far_side(*end, fmt::format("connection to {} was given up", end->local));
  });
  Link& link = network_.link(end->local, end->remote);
  queue.after(network_.flight_time(link), [end, address, &network = network_] {
    if (!network.is_cut(end->local, end->remote)) network.arrive_at_listener(end, address);
  });
  return end->id;
}

SimNetwork::SimNetwork(SimOptions options) : options_(options) {}

SimNetwork::~SimNetwork() { ATOLL_CHECK(hosts_.empty(), "a transport outlives its network"); }

std::unique_ptr<net::Transport> SimNetwork::make_transport(const std::string& host,
                                                           net::Transport::Sink sink) {
  return std::make_unique<Host>(*this, host, std::move(sink));
}

SimNetwork::Link& SimNetwork::link(const std::string& from, const std::string& to) {
  const auto [found, is_new] = links_.try_emplace({from, to});
  if (is_new) found->second.options = options_.link;
  return found->second;
}

void SimNetwork::set_link(const std::string& a, const std::string& b, LinkOptions link_options) {
  link(a, b).options = link_options;
  link(b, a).options = link_options;
}

bool SimNetwork::is_cut(const std::string& a, const std::string& b) { return link(a, b).is_cut; }

double SimNetwork::draw() { return random_uniform(options_.seed, 0, num_draws_++); }

Duration SimNetwork::flight_time(const Link& link) {
  const double jitter = static_cast<double>(link.options.jitter.count()) * draw();
  return link.options.latency + Duration(static_cast<int64_t>(jitter));
}

void SimNetwork::arrive_at_listener(const std::shared_ptr<End>& client,
                                    const std::string& address) {
  if (client->over) return;
  const Duration back = flight_time(link(client->remote, client->local));
  const auto found = listeners_.find(address);
  if (found == listeners_.end()) {
    queue_.after(back, [this, client, address] {
      if (is_cut(client->remote, client->local)) return;
      lose(*client, fmt::format("cannot connect to {}: connection refused", address));
    });
    return;
  }
  const auto server = found->second->add_end(client->local, client->plane);
  server->opened = true;
  server->peer = client;
  client->peer = server;
  server->last_arrival = queue_.now() + back;
  found->second->emit(net::Opened{server->id, true, server->plane, client->local});
  queue_.after(back, [this, client, address] {
    if (client->over || is_cut(client->remote, client->local)) return;
    client->opened = true;
    if (!client->closing) {
      client->host->emit(net::Opened{client->id, false, client->plane, address});
    }
    std::deque<Bytes> unsent = std::exchange(client->unsent, {});
    for (Bytes& frame : unsent) transmit(client, std::move(frame), /*last=*/false);
    if (client->closing) transmit(client, {}, /*last=*/true);
  });
}

void SimNetwork::transmit(const std::shared_ptr<End>& from, Bytes frame, bool last) {
  Link& way = link(from->local, from->remote);
  const double rate = way.options.bits_per_second;
  const double bits = 8.0 * static_cast<double>(frame.size());
  const Duration sending(rate > 0 ? static_cast<int64_t>(bits / rate * 1e9) : 0);
  const Time departure = from->plane == Plane::kControl
                             ? way.line.send_control(queue_.now(), sending)
                             : way.line.send_bulk(queue_.now(), sending);

  const auto size = static_cast<int64_t>(frame.size());
  auto item = std::make_shared<Item>(Item{from, std::move(frame), last});
  if (from->plane == Plane::kBulk) item->mark = from->estimator.sent(queue_.now(), size);
  item->breaks = !last && way.options.break_chance > 0 && draw() < way.options.break_chance;
  from->last_arrival = std::max(from->last_arrival, departure + flight_time(way));
  queue_.at(departure, [this, item] {
    if (!is_cut(item->from->local, item->from->remote)) depart(item);
  });
  queue_.at(from->last_arrival, [this, item] { arrive(item); });
}

void SimNetwork::depart(const std::shared_ptr<Item>& item) {
  End& end = *item->from;
  if (item->departed || end.died) return;
  item->departed = true;
  end.queued_bytes -= item->frame.size();
  if (end.refused && end.queued_bytes <= options_.queue_bytes / 2 && !end.closing &&
      end.host != nullptr) {
    end.refused = false;
    end.host->emit(net::Writable{end.id});
  }
}

void SimNetwork::arrive(const std::shared_ptr<Item>& item) {
  const auto peer = item->from->peer.lock();
  if (!peer || peer->over) return;
  if (is_cut(item->from->local, item->from->remote) || !peer->held.empty()) {
    peer->held.push_back(item);
    return;
  }
  depart(item);
  deliver(*item);
}

void SimNetwork::deliver(const Item& item) {
  const auto peer = item.from->peer.lock();
  if (!item.departed || !peer || peer->over) return;
  if (item.breaks) {
    lose(*peer, fmt::format("connection to {} reset", peer->remote));
    break_far_side(*peer, fmt::format("connection to {} reset", peer->local));
  } else if (item.last) {
    lose(*peer, fmt::format("closed by {}", peer->remote));
    break_far_side(*peer, "closed by this side");
  } else if (!peer->closing) {
    if (peer->plane == Plane::kBulk) {  // The sender would hear of it after the way back.
      const Duration back = link(peer->local, peer->remote).options.latency;
      item.from->estimator.arrived(queue_.now() + back, item.mark);
    }
    peer->host->receive(peer->id, item.frame);
  }
}

void SimNetwork::release_held(const std::string& from, const std::string& to) {
  for (const auto& end : ends_between(to, from)) {
    if (end->local != to || end->held.empty()) continue;
    // What arrives until then queues up behind them.
    queue_.after(flight_time(link(from, to)), [this, end] {
      while (!end->held.empty() && !is_cut(end->remote, end->local)) {
        const std::shared_ptr<Item> item = end->held.front();
        end->held.pop_front();
        depart(item);
        deliver(*item);
      }
    });
  }
}

void SimNetwork::begin_close(const std::shared_ptr<End>& end) {
  if (end->closing) return;
  end->closing = true;
  if (end->opened) transmit(end, {}, /*last=*/true);
  queue_.after(options_.close_timeout, [this, end] {
    break_far_side(*end, fmt::format("closed by {}", end->local));
    lose(*end, "closed by this side before everything was sent");
  });
}

void SimNetwork::break_far_side(const End& end, const std::string& reason) {
  const auto peer = end.peer.lock();
  if (!peer) return;
  queue_.after(flight_time(link(end.local, end.remote)), [this, peer, reason] {
    // Behind a cut nothing is heard: the keepalive finds out.
    if (!is_cut(peer->remote, peer->local)) lose(*peer, reason);
  });
}

std::vector<std::shared_ptr<SimNetwork::End>> SimNetwork::ends_between(const std::string& a,
                                                                       const std::string& b) const {
  std::vector<std::shared_ptr<End>> found;
  for (const Host* host : hosts_) {
    for (const auto& [id, end] : host->ends()) {
      if ((end->local == a && end->remote == b) || (end->local == b && end->remote == a)) {
        found.push_back(end);
      }
    }
  }
  return found;
}

void SimNetwork::cut_one_way(const std::string& from, const std::string& to) {
  Link& way = link(from, to);
  if (way.is_cut) return;
  way.is_cut = true;
  queue_.after(options_.keepalive_timeout, [this, &way, cut = ++way.num_cuts, from, to] {
    if (way.is_cut && way.num_cuts == cut) lose_silent_connections(from, to);
  });
}

void SimNetwork::lose_silent_connections(const std::string& from, const std::string& to) {
  for (const auto& end : ends_between(from, to)) {
    if (end->opened) lose(*end, fmt::format("{} no longer answers", end->remote));
  }
}

void SimNetwork::cut(const std::string& a, const std::string& b) {
  cut_one_way(a, b);
  cut_one_way(b, a);
}

void SimNetwork::heal(const std::string& a, const std::string& b) {
  link(a, b).is_cut = false;
  link(b, a).is_cut = false;
  release_held(a, b);
  release_held(b, a);
}

void SimNetwork::crash(const std::string& host) {
  const std::vector<Host*> hosts = hosts_;
  for (Host* process : hosts) {
    if (process->name() == host) process->crash();
  }
}

void SimNetwork::break_connections(const std::string& a, const std::string& b) {
  for (const auto& end : ends_between(a, b)) {
    queue_.after({}, [end] { lose(*end, fmt::format("connection to {} reset", end->remote)); });
  }
}

}  // namespace atl::sim
