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
  const Host* relay = nullptr;  // Whom all passes that it sends, if anybody.
  std::string relay_name;
  Time relay_free{};  // All that this end sent before has left the relay by then.
  net::Way way = net::Way::kDirect;
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

  /// The links that what it sends passes, from one host to another.
  std::vector<std::pair<std::string, std::string>> hops() const {
    if (relay == nullptr) return {{local, remote}};
    return {{local, relay_name}, {relay_name, remote}};
  }
  bool uses(const std::string& a, const std::string& b) const {
    if (relay == nullptr) return (local == a && remote == b) || (local == b && remote == a);
    const auto is_hop = [&](const std::string& one) {
      return (one == a && relay_name == b) || (one == b && relay_name == a);
    };
    return is_hop(local) || is_hop(remote);
  }
  bool sends_over(const std::string& a, const std::string& b) const {
    const auto all = hops();
    return std::ranges::find(all, std::pair(a, b)) != all.end();
  }
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
  ConnectionId meet(const net::Meeting& meeting, Plane plane) override;

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
    network_.break_circuits(*this);
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

bool SimNetwork::is_cut_from(const End& end) {
  return std::ranges::any_of(end.hops(),
                             [&](const auto& hop) { return is_cut(hop.first, hop.second); });
}

double SimNetwork::draw() { return random_uniform(options_.seed, 0, num_draws_++); }

Duration SimNetwork::flight_time(const Link& link) {
  const double jitter = static_cast<double>(link.options.jitter.count()) * draw();
  return link.options.latency + Duration(static_cast<int64_t>(jitter));
}

Duration SimNetwork::flight_time_from(const End& end) {
  Duration time{};
  for (const auto& [from, to] : end.hops()) time += flight_time(link(from, to));
  return time;
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
    if (!is_cut(client->remote, client->local)) open(client, /*inbound=*/false, address);
  });
}

void SimNetwork::open(const std::shared_ptr<End>& end, bool inbound, const std::string& remote) {
  if (end->over) return;
  end->opened = true;
  if (!end->closing) {
    end->host->emit(net::Opened{.connection = end->id,
                                .inbound = inbound,
                                .plane = end->plane,
                                .remote = remote,
                                .certificate = std::nullopt,
                                .way = end->way});
  }
  std::deque<Bytes> unsent = std::exchange(end->unsent, {});
  for (Bytes& frame : unsent) transmit(end, std::move(frame), /*last=*/false);
  if (end->closing) transmit(end, {}, /*last=*/true);
}

ConnectionId SimNetwork::Host::meet(const net::Meeting& meeting, Plane plane) {
  const auto parsed = net::parse_address(meeting.relay);
  auto end = add_end(parsed ? parsed->host : meeting.relay, plane);
  EventQueue& queue = network_.queue_;
  const auto fails = [end, relay = meeting.relay](const std::string& why) {
    SimNetwork::lose(*end, fmt::format("cannot meet at {}: {}", relay, why));
  };
  if (!parsed || dead_) {
    const std::string why = dead_ ? name_ + " has crashed" : parsed.error().message;
    queue.after({}, [fails, why] { fails(why); });
    return end->id;
  }
  queue.after(network_.options_.connect_timeout, [end, fails, &network = network_] {
    if (end->opened || end->over) return;
    network.break_far_side(*end, fmt::format("the meeting with {} was given up", end->local));
    fails("the other side did not come");
  });
  queue.after(network_.flight_time(network_.link(end->local, end->remote)),
              [end, meeting, &network = network_] {
                if (!network.is_cut(end->local, end->remote)) network.arrive_at_relay(end, meeting);
              });
  return end->id;
}

void SimNetwork::arrive_at_relay(const std::shared_ptr<End>& end, const net::Meeting& meeting) {
  if (end->over) return;
  const auto refuse = [&](const std::string& why) {
    queue_.after(flight_time(link(end->remote, end->local)), [this, end, meeting, why] {
      if (is_cut(end->remote, end->local)) return;
      lose(*end, fmt::format("cannot meet at {}: {}", meeting.relay, why));
    });
  };
  if (!listeners_.contains(meeting.relay)) return refuse("connection refused");
  Waiting& waiting = waiting_[{meeting.relay, meeting.circuit}];
  const auto other = waiting.end.lock();
  if (!other || other->over) {
    waiting = {.end = end, .calls = meeting.calls, .may_punch = meeting.may_punch};
    return;
  }
  if (other->peer.lock()) return refuse("that circuit is taken");
  if (waiting.calls == meeting.calls) {
    return refuse("both sides want to be the one that calls, or the one that is called");
  }
  const bool may_punch = meeting.may_punch && waiting.may_punch;
  const bool punched =
      may_punch && !is_cut(end->local, other->local) && !is_cut(other->local, end->local);
  if (meeting.calls) return join(end, other, meeting.relay, punched);
  join(other, end, meeting.relay, punched);
}

/// The one that is called is told first: the caller hears of it by the way that both then take.
void SimNetwork::join(const std::shared_ptr<End>& caller, const std::shared_ptr<End>& called,
                      const std::string& relay, bool punched) {
  const std::string relay_name = caller->remote;
  caller->remote = called->local;
  called->remote = caller->local;
  caller->peer = called;
  called->peer = caller;
  for (const auto& end : {caller, called}) {
    end->way = punched ? net::Way::kPunched : net::Way::kRelayed;
    if (punched) continue;
    end->relay = listeners_.at(relay);
    end->relay_name = relay_name;
  }
  const auto remote_of = [&](const End& end) {
    return punched ? end.remote : fmt::format("{} through {}", end.remote, relay);
  };
  const Duration there = flight_time(link(relay_name, called->local));
  const Duration back = there + flight_time_from(*called);
  called->last_arrival = queue_.now() + back;
  queue_.after(there, [this, called, relay_name, remote = remote_of(*called)] {
    if (!is_cut(relay_name, called->local)) open(called, /*inbound=*/true, remote);
  });
  queue_.after(back, [this, caller, called, remote = remote_of(*caller)] {
    if (called->opened && !is_cut_from(*called)) open(caller, /*inbound=*/false, remote);
  });
}

void SimNetwork::break_circuits(const Host& relay) {
  for (const Host* host : hosts_) {
    for (const auto& [id, end] : host->ends()) {
      if (end->relay != &relay) continue;
      queue_.after(flight_time(link(end->relay_name, end->local)), [this, end] {
        if (is_cut(end->relay_name, end->local)) return;
        lose(*end, fmt::format("connection to {} through {} reset", end->remote, end->relay_name));
      });
    }
  }
}

void SimNetwork::transmit(const std::shared_ptr<End>& from, Bytes frame, bool last) {
  Link& way = link(from->local, from->relay != nullptr ? from->relay_name : from->remote);
  const double rate = way.options.bits_per_second;
  const double bits = 8.0 * static_cast<double>(frame.size());
  const Duration sending(rate > 0 ? static_cast<int64_t>(bits / rate * 1e9) : 0);
  const Time departure = is_brief(from->plane) ? way.line.send_control(queue_.now(), sending)
                                               : way.line.send_bulk(queue_.now(), sending);

  const auto size = static_cast<int64_t>(frame.size());
  auto item = std::make_shared<Item>(Item{from, std::move(frame), last});
  if (from->plane == Plane::kBulk) item->mark = from->estimator.sent(queue_.now(), size);
  item->breaks = !last && way.options.break_chance > 0 && draw() < way.options.break_chance;
  Time arrival = departure + flight_time(way);
  if (from->relay != nullptr) {
    const Link& rest = link(from->relay_name, from->remote);
    const double rest_rate = rest.options.bits_per_second;
    from->relay_free = std::max(arrival, from->relay_free) +
                       Duration(rest_rate > 0 ? static_cast<int64_t>(bits / rest_rate * 1e9) : 0);
    arrival = from->relay_free + flight_time(rest);
  }
  from->last_arrival = std::max(from->last_arrival, arrival);
  queue_.at(departure, [this, item] {
    if (!is_cut_from(*item->from)) depart(item);
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
  if (is_cut_from(*item->from) || !peer->held.empty()) {
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
      Duration back{};
      for (const auto& [from, to] : peer->hops()) back += link(from, to).options.latency;
      item.from->estimator.arrived(queue_.now() + back, item.mark);
    }
    peer->host->receive(peer->id, item.frame);
  }
}

void SimNetwork::release_held(const std::string& from, const std::string& to) {
  for (const auto& end : ends_between(to, from)) {
    const auto sender = end->peer.lock();
    if (!sender || !sender->sends_over(from, to) || end->held.empty()) continue;
    // What arrives until then queues up behind them.
    queue_.after(flight_time(link(from, to)), [this, end, sender] {
      while (!end->held.empty() && !is_cut_from(*sender)) {
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
  queue_.after(flight_time_from(end), [this, peer, reason, hops = end.hops()] {
    // Behind a cut nothing is heard: the keepalive finds out.
    const bool is_heard =
        std::ranges::none_of(hops, [&](const auto& hop) { return is_cut(hop.first, hop.second); });
    if (is_heard) lose(*peer, reason);
  });
}

std::vector<std::shared_ptr<SimNetwork::End>> SimNetwork::ends_between(const std::string& a,
                                                                       const std::string& b) const {
  std::vector<std::shared_ptr<End>> found;
  for (const Host* host : hosts_) {
    for (const auto& [id, end] : host->ends()) {
      if (end->uses(a, b)) found.push_back(end);
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
