// How connections of a simulated network come to be: calls to who listens, and meetings at a relay.
#include <fmt/format.h>

#include <deque>
#include <utility>

#include "atoll/net/address.h"
#include "atoll/sim/sim_host.h"

namespace atl::sim {

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

}  // namespace atl::sim
