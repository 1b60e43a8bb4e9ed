#include "atoll/chain/conductor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace atl::chain {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(250);
constexpr Duration kLongestPause = std::chrono::seconds(30);
constexpr Duration kFirstRest = std::chrono::milliseconds(50);
constexpr Duration kLongestRest = std::chrono::seconds(2);
constexpr Duration kCutLink = std::chrono::seconds(30);
constexpr Duration kLeave = std::chrono::seconds(5);  // Then the coordinator knows of it as well.
/// A server that hangs and cannot be replaced is waited for so long.
constexpr Duration kHangPatience = std::chrono::seconds(10);
/// All its servers say that they do nothing, and it waits: something was lost on the way.
constexpr Duration kLostPatience = std::chrono::seconds(3);
constexpr double kUnknownDelay = 0.02;
constexpr double kCutDelay = 1e3;  // Taken only where there is no other way.

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void lengthen(Duration& pause, Duration first, Duration longest) {
  pause = pause == Duration{} ? first : std::min<Duration>(2 * pause, longest);
}

}  // namespace

// ---- Servers.

bool Conductor::is_usable(const Server& server, Time now) const {
  return server.is_ready && !server.hangs && now >= server.bad_until;
}

bool Conductor::is_usable(const std::string& address, Time now) const {
  const auto found = servers_.find(address);
  return found != servers_.end() && is_usable(found->second, now);
}

std::vector<Candidate> Conductor::candidates(Time now) const {
  std::vector<Candidate> found;
  for (const auto& [address, server] : servers_) {
    if (!server.is_listed || !is_usable(server, now)) continue;
    found.push_back({.address = address,
                     .layers = server.lease.layers,
                     .layers_per_s = server.lease.layers_per_s,
                     .token_layers_per_s = server.lease.token_layers_per_s,
                     .num_sessions = std::max(server.num_sessions, server.lease.num_sessions)});
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
  for (const Lease& lease : leases) {
    if (lease.num_layers != options_.num_layers) continue;
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
  std::vector<std::string> hung;
  for (auto& [address, server] : servers_) {
    if (!server.is_called && server.is_listed && now >= server.retry_at) call(address, server);
    if (!server.is_ready) continue;
    if (server.watch.is_due(now)) actions_.emplace_back(Say{address, server.watch.ping(now)});
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

// ---- Sessions.

Conductor::Sessions::iterator Conductor::find(const SessionId& id) {
  const auto key = keys_.find(id.number);
  if (id.gateway != options_.gateway || key == keys_.end()) return sessions_.end();
  return sessions_.find(key->second);
}

void Conductor::add(Key key, const Text& text, Time now) {
  sessions_[key] = {.text = text, .since = now};
  find_chains(now);
}

void Conductor::change(Key key, const Text& text, int64_t num_same) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  session.text = text;
  if (session.num_fed > num_same) {
    session.branch += 1;
    session.num_fed = num_same;
    session.num_done = std::min(session.num_done, num_same);
  }
  feed(key, session);
}

void Conductor::remove(Key key) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  let_go(found->second);
  sessions_.erase(found);
  // Its keys' and values' room is free: who lacks some tries again.
  for (auto& [other, session] : sessions_) {
    if (session.lacks_memory) session.retry_at = {};
  }
}

void Conductor::say_forget(const std::string& address, const Session& session) {
  actions_.emplace_back(
      Say{address, Forget{{.gateway = options_.gateway, .number = session.number}}});
}

/// Its servers forget it.
void Conductor::let_go(Session& session) {
  for (const Hop& hop : session.hops) {
    const auto server = servers_.find(hop.address);
    if (server == servers_.end()) continue;
    server->second.num_sessions -= 1;
    if (server->second.is_ready) say_forget(hop.address, session);
  }
  keys_.erase(session.number);
  session.hops.clear();
  session.is_broken = false;
}

void Conductor::begin_anew(Session& session, Time now) {
  let_go(session);
  session.since = now;
  ++recoveries_["anew"];
}

void Conductor::set_hops(Session& session, std::vector<Hop> hops) {
  for (const auto& [list, change] : {std::pair(&session.hops, -1), std::pair(&hops, 1)}) {
    for (const Hop& hop : *list) {
      const auto server = servers_.find(hop.address);
      if (server != servers_.end()) server->second.num_sessions += change;
    }
  }
  session.hops = std::move(hops);
}

RouteQuery Conductor::whole_query(const Session& session, Time now) const {
  return {.layers = {0, options_.num_layers},
          .from = {},
          .to = {},
          .num_prompt = session.text.num_tokens,
          .num_answer = session.text.num_to_come,
          .delay = [this, now](const auto& from, const auto& to) { return delay(from, to, now); }};
}

bool Conductor::find_chain(Key key, Session& session, Time now) {
  auto hops = choose_route(candidates(now), whole_query(session, now));
  if (!hops) return false;
  hops->back().send_from = session.text.wanted_from;
  session.number = ++last_number_;
  keys_[session.number] = key;
  set_hops(session, *std::move(hops));
  session.epoch = 1;
  session.branch = 0;
  session.num_fed = session.num_done = 0;
  session.had_chain = true;
  session.since = now;
  feed(key, session);
  return true;
}

void Conductor::find_chains(Time now) {
  int64_t num_running = static_cast<int64_t>(keys_.size());
  for (auto& [key, session] : sessions_) {
    if (session.is_broken) repair(key, session, now);
    if (!session.hops.empty()) continue;
    if (num_running >= options_.max_sessions || now < session.retry_at) continue;
    if (find_chain(key, session, now)) ++num_running;
  }
}

void Conductor::feed(Key key, Session& session) {
  if (session.hops.empty() || session.is_broken) return;
  const auto window =
      options_.chunk_tokens * (static_cast<int64_t>(session.hops.size()) + 1) + session.num_done;
  while (session.num_fed < session.text.num_tokens && session.num_fed < window) {
    const int64_t end = std::min(session.num_fed + options_.chunk_tokens, session.text.num_tokens);
    Feed feed{.key = key, .address = session.hops.front().address, .work = {}, .end = end};
    feed.work.session = {.gateway = options_.gateway, .number = session.number};
    feed.work.epoch = session.epoch;
    feed.work.branch = session.branch;
    feed.work.begin = session.num_fed;
    feed.work.hops = session.hops;
    actions_.emplace_back(std::move(feed));
    session.num_fed = end;
  }
}

void Conductor::replace(const std::string& address, const char* kind, Time now) {
  for (auto& [key, session] : sessions_) {
    const auto hop = std::ranges::find(session.hops, address, &Hop::address);
    if (hop == session.hops.end()) continue;
    Server& server = servers_.at(address);
    if (!server.hangs) {
      // Whatever it has of the session is not gone by any more, even if it comes back.
      if (server.is_ready) say_forget(address, session);
      hop->address.clear();
      server.num_sessions -= 1;
    }
    if (!session.is_broken) {
      ++recoveries_[kind];
      session.is_broken = true;
      session.since = now;
    }
    repair(key, session, now);
  }
}

/// Others in the place of its servers that cannot be used, run by run of them.
void Conductor::repair(Key key, Session& session, Time now) {
  std::vector<Candidate> others = candidates(now);
  std::erase_if(others, [&](const Candidate& other) {
    return std::ranges::find(session.hops, other.address, &Hop::address) != session.hops.end();
  });
  std::vector<Hop> hops;
  std::vector<size_t> resenders;  // Servers whose next one is new.
  bool feeds_anew = false;
  const std::vector<Hop>& old = session.hops;
  std::vector<std::string> left;
  for (size_t i = 0; i < old.size();) {
    if (is_usable(old[i].address, now)) {
      hops.push_back(old[i++]);
      continue;
    }
    size_t end = i;
    while (end < old.size() && !is_usable(old[end].address, now))
      left.push_back(old[end++].address);
    const std::string from = hops.empty() ? std::string() : hops.back().address;
    const std::string to = end == old.size() ? std::string() : old[end].address;
    RouteQuery query = whole_query(session, now);
    query.layers = {old[i].layers.begin, old[end - 1].layers.end};
    query.from = from;
    query.to = to;
    auto found = choose_route(others, query);
    if (!found) {
      // Others may make a chain, but not in its place: the same server would be in it twice.
      if (choose_route(candidates(now), whole_query(session, now))) {
        begin_anew(session, now);
        find_chain(key, session, now);
      }
      return;  // Else once there are some.
    }
    found->back().send_from =
        end == old.size() ? std::max(session.num_done, session.text.wanted_from) : session.num_done;
    if (hops.empty()) {
      feeds_anew = true;
    } else {
      resenders.push_back(hops.size() - 1);
    }
    hops.insert(hops.end(), found->begin(), found->end());
    i = end;
  }
  const SessionId id{.gateway = options_.gateway, .number = session.number};
  session.is_broken = false;
  session.epoch += 1;
  session.since = now;
  set_hops(session, std::move(hops));
  for (const std::string& address : left) {
    const auto server = servers_.find(address);
    if (server != servers_.end() && server->second.is_ready) say_forget(address, session);
  }
  for (const size_t i : resenders) {
    const auto first = session.hops.begin() + static_cast<std::ptrdiff_t>(i);
    actions_.emplace_back(
        Say{first->address,
            Reroute{.session = id, .epoch = session.epoch, .hops = {first, session.hops.end()}}});
  }
  if (feeds_anew) session.num_fed = 0;
  feed(key, session);
}

void Conductor::progressed(Session& session, Time now) {
  session.since = now;
  session.pause = {};
  session.lacks_memory = false;
}

std::optional<Conductor::Arrived> Conductor::output(const Output& message, Time now) {
  const auto found = find(message.session);
  if (found == sessions_.end() || found->second.hops.empty()) return std::nullopt;
  auto& [key, session] = *found;
  const int64_t end = message.begin + message.num_tokens;
  const bool is_known = message.branch != session.branch || end <= session.num_done;
  if (is_known || end > session.num_fed) return std::nullopt;
  const int64_t begin = std::max(message.begin, session.num_done);
  if (begin > std::max(session.num_done, session.hops.back().send_from)) {
    begin_anew(session, now);  // Some were lost on the way.
    find_chains(now);
    return std::nullopt;
  }
  session.num_done = end;
  progressed(session, now);
  feed(key, session);
  if (begin == end) return std::nullopt;
  return Arrived{.key = key, .begin = begin};
}

void Conductor::blame(const std::string& address, Time now) {
  const auto known = servers_.find(address);
  if (known == servers_.end()) return;
  lengthen(known->second.pause, kFirstPause, kLongestPause);
  known->second.bad_until = now + known->second.pause;
  replace(std::string(address), "damaged", now);
}

void Conductor::distrust(Key key, Time now) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end() || found->second.hops.empty()) return;
  // What came before it was drawn from is not to be had again from there.
  found->second.num_done = std::min(found->second.num_done, found->second.text.wanted_from);
  blame(found->second.hops.back().address, now);
  find_chains(now);
}

void Conductor::trouble(const std::string& address, const Trouble& message, Time now) {
  const auto found = find(message.session);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  const auto hop = std::ranges::find(session.hops, address, &Hop::address);
  if (hop == session.hops.end()) return;
  switch (message.fault) {
    case Fault::kNoMemory:
      let_go(session);
      if (!std::exchange(session.lacks_memory, true)) session.since = now;
      lengthen(session.pause, kFirstRest, kLongestRest);
      session.retry_at = now + session.pause;
      return;
    case Fault::kNotKept:
      begin_anew(session, now);
      break;
    case Fault::kNeighbour:
      if (message.epoch != session.epoch || std::next(hop) == session.hops.end()) return;
      cut_links_[{address, std::next(hop)->address}] = now + kCutLink;
      lengthen(session.pause, kFirstRest, kLongestRest);
      session.retry_at = now + session.pause;
      begin_anew(session, now);
      break;
    case Fault::kDamaged:
      if (message.epoch != session.epoch) return;
      if (hop == session.hops.begin()) {
        begin_anew(session, now);
      } else {
        blame(std::string(std::prev(hop)->address), now);
      }
      break;
    case Fault::kBroken:
      blame(address, now);
      break;
    case Fault::kLeaving:
      servers_.at(address).is_listed = false;
      servers_.at(address).bad_until = now + kLeave;
      replace(address, "moved", now);
      break;
  }
  find_chains(now);
}

std::string Conductor::reason_of(const Session& session, Time now) const {
  if (session.lacks_memory) {
    return "the servers have no room for more keys and values: ask for less, or later";
  }
  const Span missing = missing_layers(candidates(now), {0, options_.num_layers});
  if (missing.size() == 0) return "no chain of servers that reach each other holds all layers";
  return fmt::format("no server holds the layers {} to {} of {} of this model now", missing.begin,
                     missing.end - 1, options_.num_layers);
}

void Conductor::watch_sessions(Time now) {
  std::vector<Key> refused;
  for (auto& [key, session] : sessions_) {
    const bool waits = session.hops.empty() || session.is_broken;
    if (waits) {
      const bool has_turn = static_cast<int64_t>(keys_.size()) < options_.max_sessions;
      const Duration patience = session.lacks_memory ? options_.memory_patience
                                : session.had_chain  ? options_.patience
                                                     : options_.first_patience;
      if ((has_turn || session.is_broken) && now - session.since > patience) {
        refused.push_back(key);
      } else if (!has_turn && !session.is_broken) {
        session.since = now;
      }
      continue;
    }
    const bool are_idle = std::ranges::all_of(session.hops, [&](const Hop& hop) {
      const auto server = servers_.find(hop.address);
      return server != servers_.end() && server->second.watch.is_idle();
    });
    if (session.num_fed == session.num_done || !are_idle) {
      session.since = now;
    } else if (now - session.since > kLostPatience) {
      begin_anew(session, now);
    }
  }
  for (const Key key : refused) {
    actions_.emplace_back(Refuse{key, reason_of(sessions_.at(key), now)});
    remove(key);
  }
}

void Conductor::tick(Time now) {
  watch_servers(now);
  watch_sessions(now);
  std::erase_if(cut_links_, [&](const auto& link) { return now >= link.second; });
  find_chains(now);
}

int64_t Conductor::num_waiting() const {
  return std::ranges::count_if(sessions_,
                               [](const auto& entry) { return entry.second.hops.empty(); });
}

}  // namespace atl::chain
