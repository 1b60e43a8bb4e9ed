// How a conductor's sessions go on when something is lost: others in the place of servers, or anew.
#include <algorithm>
#include <utility>

#include "atoll/chain/conductor.h"

namespace atl::chain {
namespace {

constexpr Duration kFirstRetry = std::chrono::milliseconds(50);
constexpr Duration kLongestRetry = std::chrono::seconds(2);
constexpr Duration kCutLink = std::chrono::seconds(30);
constexpr Duration kCutPatience = std::chrono::seconds(1);
constexpr Duration kLeave = std::chrono::seconds(5);  // Then the coordinator knows of it as well.
/// All its servers say that they do nothing, and it waits: something was lost on the way.
constexpr Duration kLostPatience = std::chrono::seconds(3);
/// Where they do work, for others, one is waited for so long.
constexpr Duration kBusyPatience = std::chrono::seconds(30);

}  // namespace

void Conductor::begin_anew(Session& session, Time now) {
  drop_audits_of(session.number);
  let_go(session);
  session.text.shares_with = 0;
  session.since = now;
  lengthen(session.pause, kFirstRetry, kLongestRetry);
  if (session.progressed < now) session.retry_at = now + session.pause;
  ++recoveries_["anew"];
}

void Conductor::replace(const std::string& address, const char* kind, Time now) {
  end_rests_of(address);
  for (auto& [key, session] : sessions_) replace_in(key, session, address, kind, now);
}

void Conductor::replace_in(Key key, Session& session, const std::string& address, const char* kind,
                           Time now) {
  const auto hop = std::ranges::find(session.hops, address, &Hop::address);
  if (hop == session.hops.end()) return;
  if (const auto kept = session.kept_by.extract(address); !kept.empty()) {
    // It may have them still, where it only leaves; so may its neighbour.
    for (const std::string& holder : {address, kept.mapped().neighbour}) {
      std::erase(session.holders, holder);
      if (!holder.empty()) session.holders.insert(session.holders.begin(), holder);
    }
  }
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

bool Conductor::can_move(const Session& session, const std::string& address, Time now) const {
  const auto hop = std::ranges::find(session.hops, address, &Hop::address);
  if (hop == session.hops.end() || session.is_broken) return false;
  std::vector<Candidate> all = candidates(session.text.num_tokens, now);
  std::erase_if(all, [](const Candidate& other) { return other.is_full; });
  std::vector<Candidate> others = all;
  std::erase_if(others, [&](const Candidate& other) {
    return std::ranges::find(session.hops, other.address, &Hop::address) != session.hops.end();
  });
  RouteQuery query = whole_query(session, now);
  query.layers = hop->layers;
  if (hop != session.hops.begin()) query.from = std::prev(hop)->address;
  if (std::next(hop) != session.hops.end()) query.to = std::next(hop)->address;
  const auto is_good = [&](const std::vector<Candidate>& servers, const RouteQuery& of) {
    const auto route = choose_route(servers, of);
    return route && seconds_by(*route, servers, of) < kCutDelay;
  };
  return is_good(others, query) || is_good(all, whole_query(session, now));
}

void Conductor::move_from(const std::string& address, Time now) {
  end_rests_of(address);
  for (auto& [key, session] : sessions_) {
    if (can_move(session, address, now)) replace_in(key, session, address, "moved", now);
  }
}

/// Others in the place of its servers that cannot be used, run by run of them.
void Conductor::repair(Key key, Session& session, Time now) {
  if (session.restoring) end_restoring(key, session, now);
  std::vector<Candidate> others = candidates(session.text.num_tokens, now);
  std::erase_if(others, [&](const Candidate& other) {
    return std::ranges::find(session.hops, other.address, &Hop::address) != session.hops.end();
  });
  std::vector<Hop> hops;
  std::vector<size_t> resenders;                // Servers whose next one is new.
  std::vector<std::pair<size_t, size_t>> runs;  // Of new ones.
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
      if (choose_route(candidates(session.text.num_tokens, now), whole_query(session, now))) {
        begin_anew(session, now);
        find_chain(key, session, now);
      }
      return;  // Else once there are some.
    }
    found->back().send_from =
        end == old.size() ? std::max(session.num_done, session.text.wanted_from) : session.num_done;
    if (!hops.empty()) {
      resenders.push_back(hops.size() - 1);
      hops.back().send_from = 0;  // Whoever is behind it now has nothing yet.
    }
    runs.emplace_back(hops.size(), hops.size() + found->size());
    hops.insert(hops.end(), found->begin(), found->end());
    i = end;
  }
  session.is_broken = false;
  session.is_mixed = true;
  session.cut_behind.reset();
  session.epoch += 1;
  session.since = now;
  set_hops(session, std::move(hops));
  for (const std::string& address : left) {
    const auto server = servers_.find(address);
    if (server != servers_.end() && server->second.is_ready) say_forget(address, session);
  }
  restore_places(key, session, std::move(runs), std::move(resenders), now);
}

/// They are told who follows them from now on.
void Conductor::resend(Session& session, const std::vector<size_t>& resenders) {
  const SessionId id{.gateway = options_.gateway, .number = session.number};
  for (const size_t i : resenders) {
    const auto first = session.hops.begin() + static_cast<std::ptrdiff_t>(i);
    actions_.emplace_back(
        Say{first->address,
            Reroute{.session = id, .epoch = session.epoch, .hops = {first, session.hops.end()}}});
  }
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
  excuse(address, message.session.number, now);
  const auto found = find(message.session);
  if (found == sessions_.end()) return trouble_of_rest(address, message, now);
  Session& session = found->second;
  const auto hop = std::ranges::find(session.hops, address, &Hop::address);
  if (hop == session.hops.end()) return;
  switch (message.fault) {
    case Fault::kNoMemory:
      let_go(session);
      session.text.shares_with = 0;
      session.lacks_memory = true;
      lengthen(session.pause, kFirstRetry, kLongestRetry);
      session.retry_at = now + session.pause;
      return;
    case Fault::kNotKept:
      begin_anew(session, now);
      break;
    case Fault::kNeighbour:
      // Mostly that one is gone, which this gateway is about to find out as well.
      if (message.epoch == session.epoch && !session.cut_behind) {
        session.cut_behind = {address, now};
      }
      return;
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
      servers_.at(address).leaves_until = now + kLeave;
      move_from(address, now);
      break;
  }
  find_chains(now);
}

/// The server behind one that does not reach it is replaced, though it may be good for others.
void Conductor::cut_link(Key key, Session& session, Time now) {
  const std::string from = std::exchange(session.cut_behind, {})->first;
  const auto hop = std::ranges::find(session.hops, from, &Hop::address);
  if (hop == session.hops.end() || std::next(hop) == session.hops.end()) return;
  Hop& next = *std::next(hop);
  const auto server = servers_.find(next.address);
  if (server == servers_.end()) return;
  cut_links_[{from, next.address}] = now + kCutLink;
  say_forget(next.address, session);
  server->second.num_sessions -= 1;
  next.address.clear();
  ++recoveries_["cut"];
  session.is_broken = true;
  session.since = now;
  repair(key, session, now);
}

/// How long it waits without having got any further.
Duration Conductor::patience_for(const Session& session, Time now) const {
  if (session.lacks_memory && !fits_nowhere(session, now)) return options_.memory_patience;
  if (session.had_chain && !session.lacks_memory) return options_.patience;
  const bool is_new_gap = last_whole_ && *last_whole_ < now;
  const Duration gap =
      is_new_gap ? *last_whole_ + options_.gap_patience - session.progressed : Duration{};
  return std::max(options_.first_patience, gap);
}

void Conductor::watch_sessions(Time now) {
  const Span all{0, options_.num_layers};
  if (missing_layers(candidates(0, now), all).size() == 0) last_whole_ = now;
  std::vector<Key> refused;
  for (auto& [key, session] : sessions_) {
    if (session.cut_behind && now - session.cut_behind->second > kCutPatience) {
      cut_link(key, session, now);
    }
    const bool waits = session.hops.empty() || session.is_broken;
    const bool is_queued = session.hops.empty() && !session.lacks_memory &&
                           static_cast<int64_t>(keys_.size()) >= options_.max_sessions;
    if (is_queued || sharer(session, now) != nullptr) session.progressed = now;
    if (waits) {
      if (now - session.progressed > patience_for(session, now)) refused.push_back(key);
      continue;
    }
    if (session.restoring) continue;  // It has a time of its own.
    const bool are_idle = std::ranges::all_of(session.hops, [&](const Hop& hop) {
      const auto server = servers_.find(hop.address);
      return server != servers_.end() && server->second.watch.is_idle();
    });
    if (session.num_fed == session.num_done) {
      session.since = session.progressed = now;
    } else if (now - session.since > (are_idle ? kLostPatience : kBusyPatience)) {
      begin_anew(session, now);
    }
  }
  for (const Key key : refused) {
    const Session& session = sessions_.at(key);
    actions_.emplace_back(Refuse{key, reason_of(session, now), is_full_for(session, now)});
    remove(key);
  }
}

}  // namespace atl::chain
