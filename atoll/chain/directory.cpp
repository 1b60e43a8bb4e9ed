#include "atoll/chain/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/name.h"
#include "atoll/chain/events.h"
#include "atoll/chain/lease.h"
#include "atoll/chain/wire.h"

namespace atl::chain {
namespace {

constexpr Duration kLooking = std::chrono::milliseconds(250);

}  // namespace

Directory::Actions Directory::opened(Connection connection, std::optional<identity::PeerId> peer,
                                     Time now) {
  if (callers_.size() >= kMostCallers) {
    actions_.emplace_back(Close{connection});
  } else {
    if (peer && !revocations_.empty()) {
      actions_.emplace_back(Send{connection, Revoked{revocations_}});
    }
    callers_[connection] = {.peer = std::move(peer), .heard = now};
    next_look_ = std::min(next_look_, now + kLooking);
  }
  return take();
}

Directory::Actions Directory::received(Connection connection, const Message& message, Time now) {
  const auto found = callers_.find(connection);
  if (found == callers_.end()) return {};
  Caller& caller = found->second;
  caller.heard = now;
  if (const auto* offer = std::get_if<Offer>(&message)) {
    offered(connection, offer->lease, now);
  } else if (const auto* watch = std::get_if<Watch>(&message)) {
    if (watch->digest.size() > kMaxDigest) {
      refuse(connection, "a digest too long", now);
      return take();
    }
    caller.watches = watch->digest;
    if (has_begun(now)) {
      tell(connection, caller);
    } else {
      changed(watch->digest, true, now);
    }
  } else if (const auto* report = std::get_if<Report>(&message)) {
    reported(connection, *report, now);
  } else if (const auto* ping = std::get_if<Ping>(&message)) {
    actions_.emplace_back(Send{connection, Pong{.number = ping->number}});
  } else {
    refuse(connection, "no directory hears a " + kind_name(message), now);
  }
  if (now >= tell_at_) tell_watchers(now);
  return take();
}

Directory::Actions Directory::garbled(Connection connection, const std::string& reason, Time now) {
  if (callers_.contains(connection)) refuse(connection, reason, now);
  return take();
}

Directory::Actions Directory::tell_revocations(Bytes signed_list) {
  revocations_ = std::move(signed_list);
  for (const auto& [connection, caller] : callers_) {
    if (caller.peer) actions_.emplace_back(Send{connection, Revoked{revocations_}});
  }
  return take();
}

Directory::Actions Directory::lost(Connection connection, Time now) {
  forget(connection, now);
  return take();
}

void Directory::refuse(Connection connection, const std::string& reason, Time now) {
  actions_.emplace_back(Send{connection, Refused{reason}});
  actions_.emplace_back(Close{connection});
  forget(connection, now);
}

void Directory::forget(Connection connection, Time now) {
  const auto caller = callers_.extract(connection);
  if (caller.empty()) return;
  const auto server = servers_.find(caller.mapped().server);
  if (server == servers_.end() || server->second.connection != connection) return;
  server->second.connection = 0;
  server->second.seat.is_here = false;
  server->second.ends = std::min(server->second.ends, now + kLostGrace);
}

// ---- Leases.

std::string Directory::objection_to(Connection connection, const Lease& lease) const {
  const Caller& caller = callers_.at(connection);
  if (caller.peer && caller.peer->role != identity::Role::kServer) {
    return fmt::format("its certificate is of role {}, not server", name_of(caller.peer->role));
  }
  if (caller.peer && caller.peer->name != lease.name) {
    return fmt::format("it says that it is '{}', and its certificate that it is '{}'",
                       printable(lease.name), caller.peer->name);
  }
  if (std::string fault = fault_of(lease); !fault.empty()) return fault;
  if (!caller.server.empty() && caller.server != lease.name) {
    return fmt::format("it was '{}' before", caller.server);
  }
  for (const auto& [name, server] : servers_) {
    const Lease& other = server.seat.lease;
    if (name == lease.name) {
      const bool is_another = server.connection != 0 && server.connection != connection &&
                              !caller.peer && other.address != lease.address;
      if (is_another) return fmt::format("another server is called '{}'", name);
      if (server.connection == connection && other.digest != lease.digest) {
        return "it was for another model before";
      }
    } else if (other.digest == lease.digest && other.num_layers != lease.num_layers) {
      return fmt::format("its model has {} layers, and that of '{}', of the same digest, {}",
                         lease.num_layers, name, other.num_layers);
    }
  }
  if (servers_.size() >= kMostServers && !servers_.contains(lease.name)) {
    return fmt::format("there are {} servers", servers_.size());
  }
  return {};
}

void Directory::offered(Connection connection, const Lease& lease, Time now) {
  if (const std::string reason = objection_to(connection, lease); !reason.empty()) {
    log(OfferRefused{.server = printable(lease.name), .reason = reason});
    return refuse(connection, reason, now);
  }
  // It comes again and again: what is to be said of it was said (ServerReported).
  if (const std::string bar = bar_to(lease.name, lease.digest); !bar.empty()) {
    return refuse(connection, bar, now);
  }
  auto found = servers_.find(lease.name);
  if (found != servers_.end() && found->second.seat.lease.digest != lease.digest) {
    remove(lease.name, "it serves another model now", now);
    found = servers_.end();
  }
  callers_.at(connection).server = lease.name;
  if (found == servers_.end()) return come(connection, lease, now);
  renew(connection, found->second, lease, now);
}

void Directory::come(Connection connection, const Lease& lease, Time now) {
  servers_[lease.name] = {.seat = {.lease = lease, .told_at = now},
                          .connection = connection,
                          .ends = now + kLeaseLength};
  Model& model = models_[lease.digest];
  model.name = lease.model;
  model.num_layers = lease.num_layers;
  changed(lease.digest, true, now);
  log(ServerCame{.server = lease.name, .address = lease.address, .model = lease.model});
  if (lease.state == LeaseState::kServing) {
    log(ServerServes{lease.name, lease.layers.begin, lease.layers.end - 1});
  }
}

void Directory::renew(Connection connection, Server& server, const Lease& lease, Time now) {
  Seat& seat = server.seat;
  if (const Connection before = std::exchange(server.connection, connection);
      before != connection) {
    if (before != 0) {  // Its own, which it has given up.
      actions_.emplace_back(Close{before});
      callers_.erase(before);
    }
    // What it may not have heard is decided anew; what it does goes on.
    const bool does_it =
        lease.state == LeaseState::kDraining || lease.state == LeaseState::kLoading;
    if (!does_it) seat.told.reset();
    seat.is_here = true;
  }
  const bool is_news = differ_for_routes(seat.lease, lease);
  const bool serves = lease.state == LeaseState::kServing;
  if (is_news && serves) {
    log(ServerServes{lease.name, lease.layers.begin, lease.layers.end - 1});
  }
  if (seat.lease != lease) changed(lease.digest, is_news, now);
  seat.lease = lease;
  const bool is_done = serves && seat.told == lease.layers;
  const bool is_void = lease.is_fixed || (seat.told && !fault_of(*seat.told, lease).empty());
  if (is_done || is_void) seat.told.reset();
  server.ends = now + kLeaseLength;
}

void Directory::remove(const std::string& name, const std::string& reason, Time now) {
  const auto server = servers_.extract(name);
  if (server.empty()) return;
  changed(server.mapped().seat.lease.digest, true, now);
  log(ServerGone{.server = name, .reason = reason});
}

std::vector<Lease> Directory::leases() const {
  std::vector<Lease> leases;
  for (const auto& [name, server] : servers_) leases.push_back(server.seat.lease);
  return leases;
}

// ---- Liars.

std::string Directory::bar_to(const std::string& name, const std::string& digest) const {
  int64_t num_gateways = 0;
  int64_t num_reports = 0;
  std::string reason;
  for (const auto& [connection, caller] : callers_) {
    const bool is_gateway =
        caller.peer ? caller.peer->role == identity::Role::kGateway : caller.server.empty();
    if (!is_gateway || caller.watches != digest) continue;
    ++num_gateways;
    const auto report = caller.reports.find(name);
    if (report == caller.reports.end()) continue;
    ++num_reports;
    reason = report->second;
  }
  if (2 * num_reports <= num_gateways) return {};
  return fmt::format("{} of {} gateways report that it does not compute what its model says: {}",
                     num_reports, num_gateways, reason);
}

void Directory::reported(Connection connection, const Report& report, Time now) {
  Caller& caller = callers_.at(connection);
  if (caller.peer && caller.peer->role != identity::Role::kGateway) {
    return refuse(connection, "servers are reported by gateways alone", now);
  }
  if (caller.reports.size() >= kMostReports) {
    return refuse(connection, fmt::format("{} servers were reported", kMostReports), now);
  }
  const std::string name = printable(report.server);
  const std::string reason = printable(report.reason);
  if (!caller.reports.try_emplace(name, reason).second) return;
  log(ServerReported{.server = name,
                     .gateway = caller.peer ? caller.peer->name : std::string(),
                     .reason = reason});
  const auto server = servers_.find(name);
  if (server == servers_.end()) return;
  const std::string bar = bar_to(name, server->second.seat.lease.digest);
  if (bar.empty()) return;
  const Connection line = server->second.connection;
  remove(name, bar, now);
  if (line != 0) refuse(line, bar, now);
}

// ---- Time.

Directory::Actions Directory::tick(Time now) {
  if (now >= next_look_) {
    std::vector<std::pair<std::string, bool>> ended;
    for (const auto& [name, server] : servers_) {
      if (now >= server.ends) ended.emplace_back(name, server.connection == 0);
    }
    for (const auto& [name, was_lost] : ended) {
      remove(name, was_lost ? "its connection was lost" : "it fell silent", now);
    }
    std::vector<Connection> silent;
    for (const auto& [connection, caller] : callers_) {
      if (now - caller.heard >= kSilence) silent.push_back(connection);
    }
    for (const Connection connection : silent) {
      actions_.emplace_back(Close{connection});
      forget(connection, now);
    }
    if (has_begun(now)) place(now);
    next_look_ = servers_.empty() && callers_.empty() ? Time::max() : now + kLooking;
  }
  if (now >= tell_at_) tell_watchers(now);
  return take();
}

Time Directory::next_deadline() const { return std::min(next_look_, tell_at_); }

Seats Directory::seats_of(const std::string& digest) {
  Seats seats;
  for (auto& [name, server] : servers_) {
    if (server.seat.lease.digest == digest) seats[name] = &server.seat;
  }
  return seats;
}

void Directory::place(Time now) {
  for (auto& [digest, model] : models_) {
    const Seats seats = seats_of(digest);
    look_at(model, seats);
    if (seats.empty()) continue;
    for (const std::string& name : Placer::give_up(seats, now)) log(ServerIdle{name});
    for (const Placer::Order& order : model.placer.decide(seats, now)) {
      log(ServerPlaced{.server = order.server,
                       .first = order.layers.begin,
                       .last = order.layers.end - 1,
                       .reason = order.reason});
      actions_.emplace_back(Send{servers_.at(order.server).connection, Place{order.layers}});
    }
  }
  std::erase_if(models_, [&](const auto& model) { return seats_of(model.first).empty(); });
}

void Directory::look_at(Model& model, const Seats& seats) {
  const int32_t missing = seats.empty() ? model.num_layers : num_unserved(seats);
  const bool is_whole = missing == 0;
  if (std::exchange(model.is_whole, is_whole) == is_whole) return;
  if (is_whole) {
    log(ModelWhole{.model = model.name, .servers = static_cast<int64_t>(seats.size())});
  } else {
    log(ModelTorn{.model = model.name, .missing = missing});
  }
}

// ---- Watchers.

void Directory::changed(const std::string& digest, bool at_once, Time now) {
  changed_.insert(files_of(digest));
  const Time earliest = std::max(begun_ + kHearing, told_at_ + (at_once ? kTogether : kTelling));
  tell_at_ = std::min(tell_at_, std::max(now, earliest));
  next_look_ = std::min(next_look_, now + kLooking);
}

void Directory::tell_watchers(Time now) {
  for (const auto& [connection, caller] : callers_) {
    if (!caller.watches) continue;
    const std::string files = files_of(*caller.watches);
    if (files.empty() || changed_.contains(files)) tell(connection, caller);
  }
  changed_.clear();
  told_at_ = now;
  tell_at_ = Time::max();
}

void Directory::tell(Connection connection, const Caller& caller) {
  Servers servers;
  const std::string files = files_of(*caller.watches);
  for (const auto& [name, server] : servers_) {
    const Lease& lease = server.seat.lease;
    if (files.empty() || files == files_of(lease.digest)) servers.leases.push_back(lease);
  }
  actions_.emplace_back(Send{connection, std::move(servers)});
}

}  // namespace atl::chain
