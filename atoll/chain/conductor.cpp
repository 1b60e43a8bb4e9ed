#include "atoll/chain/conductor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "atoll/chain/lease.h"

namespace atl::chain {
namespace {

constexpr Duration kFirstRest = std::chrono::milliseconds(50);
constexpr Duration kLongestRest = std::chrono::seconds(2);
constexpr Duration kCutLink = std::chrono::seconds(30);
constexpr Duration kCutPatience = std::chrono::seconds(1);
constexpr Duration kLeave = std::chrono::seconds(5);  // Then the coordinator knows of it as well.
/// All its servers say that they do nothing, and it waits: something was lost on the way.
constexpr Duration kLostPatience = std::chrono::seconds(3);
/// Where they do work, for others, one is waited for so long.
constexpr Duration kBusyPatience = std::chrono::seconds(30);

}  // namespace

Conductor::Sessions::iterator Conductor::find(const SessionId& id) {
  const auto key = keys_.find(id.number);
  if (id.gateway != options_.gateway || key == keys_.end()) return sessions_.end();
  return sessions_.find(key->second);
}

void Conductor::add(Key key, const Text& text, Time now) {
  sessions_[key] = {.text = text, .since = now, .progressed = now};
  find_chains(now);
}

void Conductor::change(Key key, const Text& text, int64_t num_same) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  session.text = text;
  session.shares_with = 0;  // It was said with its first rows.
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
  consider_audit(key, found->second, 1, last_tick_);
  let_go(found->second);
  sessions_.erase(found);
  // Its keys' and values' room is free: who lacks some tries again.
  for (auto& [other, session] : sessions_) {
    if (session.lacks_memory) session.retry_at = {};
  }
}

void Conductor::say_forget(const std::string& address, const Session& session) {
  actions_.emplace_back(
      Say{address, Forget{.session = {.gateway = options_.gateway, .number = session.number},
                          .epoch = session.epoch}});
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
  session.cut_behind.reset();
}

void Conductor::begin_anew(Session& session, Time now) {
  drop_audits_of(session.number);
  let_go(session);
  session.text.shares_with = 0;
  session.since = now;
  lengthen(session.pause, kFirstRest, kLongestRest);
  if (session.progressed < now) session.retry_at = now + session.pause;
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

const Conductor::Session* Conductor::sharer(const Session& session, Time now) const {
  const auto resting = resting_.find(session.text.shares_with);
  if (resting != resting_.end()) {
    const bool is_good = std::ranges::all_of(
        resting->second.hops, [&](const Hop& hop) { return is_usable(hop.address, now); });
    return is_good ? &resting->second : nullptr;
  }
  const auto other = sessions_.find(session.text.shares_with);
  if (other == sessions_.end() || other->second.hops.empty()) return nullptr;
  return other->second.is_broken ? nullptr : &other->second;
}

bool Conductor::find_chain(Key key, Session& session, Time now) {
  if (const Session* other = sharer(session, now)) {
    if (const auto rest = resting_.find(session.text.shares_with); rest != resting_.end()) {
      rest->second.since = now;
    }
    session.shares_with = other->number;
    session.is_mixed = other->is_mixed;
    begin(key, session, other->hops, now);
    return true;
  }
  session.shares_with = 0;
  session.is_mixed = false;
  auto hops = choose_route(candidates(session.text.num_tokens, now), whole_query(session, now));
  if (!hops) return false;
  begin(key, session, *std::move(hops), now);
  return true;
}

void Conductor::begin(Key key, Session& session, std::vector<Hop> hops, Time now) {
  for (Hop& hop : hops) hop.send_from = 0;
  hops.back().send_from = session.text.wanted_from;
  session.number = ++last_number_;
  keys_[session.number] = key;
  set_hops(session, std::move(hops));
  session.epoch = 1;
  session.branch = 0;
  session.num_fed = session.num_done = session.shares_with == 0 ? 0 : session.text.num_shared;
  session.had_chain = true;
  session.since = now;
  feed(key, session);
}

void Conductor::find_chains(Time now) {
  int64_t num_running = static_cast<int64_t>(keys_.size());
  int64_t too_long = std::numeric_limits<int64_t>::max();
  for (auto& [key, session] : sessions_) {
    if (session.is_broken) repair(key, session, now);
    if (!session.hops.empty()) continue;
    if (num_running >= options_.max_sessions || now < session.retry_at) continue;
    const Session* const other = sharer(session, now);
    if (other != nullptr && other->num_done < session.text.num_shared) continue;  // Soon.
    if (session.text.num_tokens >= too_long) continue;
    if (find_chain(key, session, now)) {
      ++num_running;
    } else {
      too_long = session.text.num_tokens;  // Who is longer finds none either.
    }
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
    feed.work.shares_with = session.shares_with;
    feed.work.num_shared = session.shares_with == 0 ? 0 : session.text.num_shared;
    feed.work.hops = session.hops;
    actions_.emplace_back(std::move(feed));
    session.num_fed = end;
  }
}

void Conductor::replace(const std::string& address, const char* kind, Time now) {
  end_rests_of(address);
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
  std::vector<Candidate> others = candidates(session.text.num_tokens, now);
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
      if (choose_route(candidates(session.text.num_tokens, now), whole_query(session, now))) {
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
      hops.back().send_from = 0;  // Whoever is behind it now has nothing yet.
    }
    hops.insert(hops.end(), found->begin(), found->end());
    i = end;
  }
  const SessionId id{.gateway = options_.gateway, .number = session.number};
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
  for (const size_t i : resenders) {
    const auto first = session.hops.begin() + static_cast<std::ptrdiff_t>(i);
    actions_.emplace_back(
        Say{first->address,
            Reroute{.session = id, .epoch = session.epoch, .hops = {first, session.hops.end()}}});
  }
  if (feeds_anew) session.num_fed = 0;
  feed(key, session);
}

std::optional<Conductor::Arrived> Conductor::output(const std::string& address,
                                                    const Output& message, Time now) {
  const auto found = find(message.session);
  if (found == sessions_.end() || found->second.hops.empty()) return std::nullopt;
  auto& [key, session] = *found;
  if (session.hops.back().address != address) return std::nullopt;
  const int64_t end = message.begin + message.num_tokens;
  const bool is_known = message.branch != session.branch || end <= session.num_done;
  if (is_known || end > session.num_fed) return std::nullopt;
  const int64_t begin = std::max(message.begin, session.num_done);
  if (begin > std::max(session.num_done, session.hops.back().send_from)) {
    begin_anew(session, now);  // Some were lost on the way.
    find_chains(now);
    return std::nullopt;
  }
  count_served(session, end - session.num_done);
  session.num_done = end;
  session.since = now;
  if (end > session.most_done) {
    session.most_done = end;
    session.progressed = now;
    session.pause = {};
    session.lacks_memory = false;
    for (const Hop& hop : session.hops) {
      const auto server = servers_.find(hop.address);
      if (server != servers_.end()) server->second.bad_pause = {};
    }
  }
  feed(key, session);
  consider_audit(key, session, kAuditedAtLeast, now);
  const bool is_awaited = std::ranges::any_of(sessions_, [&](const auto& other) {
    return other.second.hops.empty() && other.second.text.shares_with == found->first;
  });
  if (is_awaited) find_chains(now);
  if (begin == end) return std::nullopt;
  return Arrived{.key = key, .begin = begin, .session = session.number};
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
  if (message.session.gateway == options_.gateway && end_rest_of(message.session.number)) return;
  const auto found = find(message.session);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  const auto hop = std::ranges::find(session.hops, address, &Hop::address);
  if (hop == session.hops.end()) return;
  switch (message.fault) {
    case Fault::kNoMemory:
      let_go(session);
      session.text.shares_with = 0;
      session.lacks_memory = true;
      lengthen(session.pause, kFirstRest, kLongestRest);
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
      servers_.at(address).is_listed = false;
      servers_.at(address).bad_until = now + kLeave;
      replace(address, "moved", now);
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

std::string Conductor::reason_of(const Session& session, Time now) const {
  if (session.lacks_memory) {
    return "the servers have no room for more keys and values: ask for less, or later";
  }
  if (servers_.empty() && !other_types_.empty()) {
    const auto text = [](const std::string& type) {
      return type.empty() ? "as its files have it" : "in " + type;
    };
    return fmt::format(
        "the servers of this model compute {}, and this gateway is for it {}: say "
        "--dtype to one of them",
        text(*other_types_.begin()), text(type_of(options_.digest)));
  }
  if (servers_.empty()) {
    return "no server of this model is known: are they of the same weights, and is the coordinator "
           "reached?";
  }
  const Span all{0, options_.num_layers};
  const Span missing = missing_layers(candidates(0, now), all);
  if (missing.size() == 0) {
    const bool is_long = missing_layers(candidates(session.text.num_tokens, now), all).size() > 0;
    return is_long ? fmt::format("no chain of servers has memory for the {} tokens of this text",
                                 session.text.num_tokens)
                   : "the servers of this model get no further with this text";
  }
  return fmt::format("no server holds the layers {} to {} of {} of this model now", missing.begin,
                     missing.end - 1, options_.num_layers);
}

void Conductor::watch_sessions(Time now) {
  std::vector<Key> refused;
  for (auto& [key, session] : sessions_) {
    if (session.cut_behind && now - session.cut_behind->second > kCutPatience) {
      cut_link(key, session, now);
    }
    const bool waits = session.hops.empty() || session.is_broken;
    const bool is_queued = session.hops.empty() && !session.lacks_memory &&
                           static_cast<int64_t>(keys_.size()) >= options_.max_sessions;
    const Duration patience = session.lacks_memory ? options_.memory_patience
                              : session.had_chain  ? options_.patience
                                                   : options_.first_patience;
    if (is_queued || sharer(session, now) != nullptr) session.progressed = now;
    if (waits) {
      if (now - session.progressed > patience) refused.push_back(key);
      continue;
    }
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
    actions_.emplace_back(Refuse{key, reason_of(sessions_.at(key), now)});
    remove(key);
  }
}

void Conductor::tick(Time now) {
  watch_servers(now);
  watch_sessions(now);
  watch_audits(now);
  watch_rests(now);
  std::erase_if(cut_links_, [&](const auto& link) { return now >= link.second; });
  find_chains(now);
}

int64_t Conductor::num_waiting() const {
  return std::ranges::count_if(sessions_,
                               [](const auto& entry) { return entry.second.hops.empty(); });
}

}  // namespace atl::chain
