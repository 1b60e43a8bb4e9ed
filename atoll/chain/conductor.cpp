#include "atoll/chain/conductor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "atoll/chain/lease.h"

namespace atl::chain {

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
  const Text before = std::exchange(session.text, text);
  if (num_same >= before.num_shared) {
    session.text.shares_with = before.shares_with;
    session.text.num_shared = before.num_shared;
  }
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
  give_room();
}

void Conductor::hold(const std::string& address, uint64_t adapter, Time now) {
  for (auto& [key, session] : sessions_) {
    const bool has_it =
        std::ranges::find(session.hops, address, &Hop::address) != session.hops.end();
    if (has_it && session.text.adapter == adapter) session.since = session.progressed = now;
  }
}

/// Keys' and values' room is free: who lacks some tries again.
void Conductor::give_room() {
  for (auto& [key, session] : sessions_) {
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
  session.restoring.reset();
  session.kept_by.clear();
  session.hops.clear();
  session.is_broken = false;
  session.cut_behind.reset();
}

void Conductor::set_hops(Session& session, std::vector<Hop> hops) {
  for (const auto& [list, change] : {std::pair(&session.hops, -1), std::pair(&hops, 1)}) {
    for (const Hop& hop : *list) {
      const auto server = servers_.find(hop.address);
      if (server != servers_.end()) server->second.num_sessions += change;
    }
  }
  session.hops = std::move(hops);
  session.levels.clear();
}

RouteQuery Conductor::whole_query(const Session& session, Time now) const {
  return {.layers = {0, options_.num_layers},
          .from = {},
          .to = {},
          .num_prompt = session.text.num_tokens,
          .num_answer = session.text.num_to_come,
          .needs_head = options_.needs_head,
          .delay = [this, now](const auto& from, const auto& to) { return delay(from, to, now); }};
}

const Conductor::Session* Conductor::sharer(const Session& session, Time now) const {
  const auto is_good = [&](const Session& other) {
    return other.is_for_others() && std::ranges::all_of(other.hops, [&](const Hop& hop) {
             return is_usable(hop.address, now) && !leaves(hop.address, now);
           });
  };
  const auto resting = resting_.find(session.text.shares_with);
  if (resting != resting_.end()) {
    return is_good(resting->second) ? &resting->second : nullptr;
  }
  const auto other = sessions_.find(session.text.shares_with);
  if (other == sessions_.end() || other->second.hops.empty()) return nullptr;
  return other->second.is_broken || !is_good(other->second) ? nullptr : &other->second;
}

bool Conductor::find_chain(Key key, Session& session, Time now) {
  const auto others = candidates(session.text.num_tokens, now);
  auto hops = choose_route(others, whole_query(session, now));
  const Session* other = sharer(session, now);
  if (other != nullptr && hops) {
    RouteQuery shared = whole_query(session, now);
    shared.num_prompt -= session.text.num_shared;
    // Where its servers are busy the text is sooner read anew by others.
    if (seconds_by(*hops, others, whole_query(session, now)) <
        seconds_by(other->hops, others, shared)) {
      other = nullptr;
    }
  }
  if (other != nullptr) {
    if (const auto rest = resting_.find(session.text.shares_with); rest != resting_.end()) {
      rest->second.since = now;
    }
    session.shares_with = other->number;
    session.is_mixed = other->is_mixed;
    if (options_.kept_tokens > 0) {
      session.kept_by = other->kept_by;
      const auto shared = static_cast<uint32_t>(session.text.num_shared / options_.kept_tokens);
      for (auto& [address, kept] : session.kept_by) {
        kept.num_chunks = std::min(kept.num_chunks, shared);
      }
    }
    begin(key, session, other->hops, now);
    return true;
  }
  session.shares_with = 0;
  session.is_mixed = false;
  if (!hops) return false;
  begin(key, session, *std::move(hops), now);
  return true;
}

void Conductor::begin(Key key, Session& session, std::vector<Hop> hops, Time now) {
  for (Hop& hop : hops) {
    hop.send_from = 0;
    hop.restored = session.shares_with == 0 ? 0 : std::min(hop.restored, session.text.num_shared);
  }
  hops.back().send_from = session.text.wanted_from;
  session.number = ++last_number_;
  keys_[session.number] = key;
  set_hops(session, std::move(hops));
  session.epoch = 1;
  session.branch = 0;
  session.num_rounded = 0;
  session.num_fed = session.num_done = session.shares_with == 0 ? 0 : session.text.num_shared;
  session.had_chain = true;
  session.since = now;
  if (!restore_beginning(key, session, now)) feed(key, session);
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
    if (other == nullptr && session.text.num_tokens >= too_long) continue;
    if (find_chain(key, session, now)) {
      ++num_running;
    } else {
      too_long = session.text.num_tokens;  // Who is longer finds none either.
    }
  }
}

void Conductor::feed(Key key, Session& session) {
  if (session.hops.empty() || session.is_broken || session.restoring) return;
  const auto window =
      options_.chunk_tokens * (static_cast<int64_t>(session.hops.size()) + 1) + session.num_done;
  while (session.num_fed < session.text.num_tokens && session.num_fed < window) {
    const int64_t end = std::min(session.num_fed + options_.chunk_tokens, session.text.num_tokens);
    Feed feed{.key = key, .address = session.hops.front().address, .work = {}, .end = end};
    feed.work.session = {.gateway = options_.gateway, .number = session.number};
    feed.work.epoch = session.epoch;
    feed.work.branch = session.branch;
    feed.work.rows.begin = session.num_fed;
    feed.work.shares_with = session.shares_with;
    feed.work.num_shared = session.shares_with == 0 ? 0 : session.text.num_shared;
    feed.work.adapter = session.text.adapter;
    feed.work.hops = session.hops;
    const int64_t skipped =
        session.shares_with == 0 ? session.hops.front().restored : session.text.num_shared;
    const bool is_first = session.epoch == 1 && session.most_done == 0;
    if (is_first && session.num_fed == skipped) {
      feed.is_first = true;
      feed.num_rounded = session.num_rounded;
    }
    actions_.emplace_back(std::move(feed));
    session.num_fed = end;
  }
}

std::optional<Conductor::Arrived> Conductor::output(const std::string& address,
                                                    const Output& message, Time now) {
  const auto found = find(message.session);
  if (found == sessions_.end() || found->second.hops.empty()) return std::nullopt;
  auto& [key, session] = *found;
  if (session.hops.back().address != address) return std::nullopt;
  const int64_t end = message.rows.end();
  const bool is_known = message.branch != session.branch || end <= session.num_done;
  if (is_known || end > session.num_fed) return std::nullopt;
  const int64_t begin = std::max(message.rows.begin, session.num_done);
  if (begin > std::max(session.num_done, session.hops.back().send_from)) {
    begin_anew(session, now);  // Some were lost on the way.
    find_chains(now);
    return std::nullopt;
  }
  count_served(session, end - session.num_done);
  // Of what is wanted a round trip to here is a part.
  if (message.rows.num_tokens == 0) note_reading(session, end, now);
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
  if (message.epoch == session.epoch) keep_chunks(key, session, now);
  consider_audit(key, session, kAuditedAtLeast, now);
  const bool is_awaited = std::ranges::any_of(sessions_, [&](const auto& other) {
    return other.second.hops.empty() && other.second.text.shares_with == found->first;
  });
  if (is_awaited) find_chains(now);
  if (begin == end) return std::nullopt;
  return Arrived{.key = key, .begin = begin, .session = session.number};
}

/// All layers are there with servers that could hold it, and other texts have their room.
bool Conductor::is_full_for(const Session& session, Time now) const {
  const std::vector<Candidate> all = candidates(session.text.num_tokens, now);
  return session.lacks_memory && missing_layers(all, {0, options_.num_layers}).size() == 0;
}

/// All layers are there, and those who have some of them have no memory for so long a text.
bool Conductor::fits_nowhere(const Session& session, Time now) const {
  const Span all{0, options_.num_layers};
  return missing_layers(candidates(0, now), all).size() == 0 &&
         missing_layers(candidates(session.text.num_tokens, now), all).size() > 0;
}

std::string Conductor::reason_of(const Session& session, Time now) const {
  if (is_full_for(session, now)) {
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
  if (missing.size() == 0 && options_.needs_head && !have_heads(candidates(0, now), all)) {
    return "no servers of the first and the last layers have the embedding and the head, which "
           "this gateway has not: start some of those with --head";
  }
  if (missing.size() == 0) {
    return fits_nowhere(session, now)
               ? fmt::format("no chain of servers has memory for the {} tokens of this text",
                             session.text.num_tokens)
               : "the servers of this model get no further with this text";
  }
  return fmt::format("no server holds the layers {} to {} of {} of this model now", missing.begin,
                     missing.end - 1, options_.num_layers);
}

void Conductor::tick(Time now) {
  watch_servers(now);
  watch_sessions(now);
  watch_audits(now);
  watch_rests(now);
  watch_restores(now);
  std::erase_if(cut_links_, [&](const auto& link) { return now >= link.second; });
  find_chains(now);
}

int64_t Conductor::num_waiting() const {
  return std::ranges::count_if(sessions_,
                               [](const auto& entry) { return entry.second.hops.empty(); });
}

}  // namespace atl::chain
