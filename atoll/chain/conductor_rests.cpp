// A conductor's texts that are over, and are kept by their servers: who begins as one of them does
// reads only the rest, as the next question of a conversation does.
#include <algorithm>

#include "atoll/chain/conductor.h"

namespace atl::chain {
namespace {

constexpr size_t kMostRests = 64;
constexpr Duration kLongestRest = std::chrono::minutes(10);  // After its last use.

}  // namespace

int64_t Conductor::rest(Key key, Time now) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return 0;
  Session& session = found->second;
  const int64_t num_kept =
      std::min(session.num_done, session.text.num_tokens - session.text.num_guessed);
  if (session.hops.empty() || session.is_broken || num_kept < kLeastShared ||
      !session.is_for_others()) {
    remove(key);
    return 0;
  }
  consider_audit(key, session, 1, now);
  for (const Hop& hop : session.hops) {
    const auto server = servers_.find(hop.address);
    if (server == servers_.end()) continue;
    server->second.num_sessions -= 1;
    actions_.emplace_back(
        Say{hop.address, Rest{.session = {.gateway = options_.gateway, .number = session.number}}});
  }
  keys_.erase(session.number);
  session.num_done = num_kept;
  session.since = now;
  resting_[key] = std::move(session);
  sessions_.erase(found);
  give_room();  // It gives way where room is short.
  for (auto& [other, waiting] : sessions_) {
    // What was not read of it yet never will be.
    if (waiting.text.shares_with != key || !waiting.hops.empty()) continue;
    waiting.text.num_shared = std::min(waiting.text.num_shared, num_kept);
    if (waiting.text.num_shared < kLeastShared) waiting.text.shares_with = 0;
  }
  return num_kept;
}

void Conductor::forget(Key key) {
  const auto found = sessions_.find(key);
  if (found != sessions_.end()) {
    found->second.is_private = true;
    found->second.levels.clear();  // Servers have it no more.
  }
  end_rest(key);
}

void Conductor::end_rest(Key key) {
  const auto rest = resting_.extract(key);
  if (rest.empty()) return;
  for (const Hop& hop : rest.mapped().hops) {
    const auto server = servers_.find(hop.address);
    if (server != servers_.end() && server->second.is_ready) say_forget(hop.address, rest.mapped());
  }
  actions_.emplace_back(Gone{key});
}

Conductor::Sessions::iterator Conductor::find_rest(uint64_t session) {
  return std::ranges::find_if(resting_,
                              [&](const auto& entry) { return entry.second.number == session; });
}

/// One of its servers does not keep it any more, or found what was under way to be damaged.
void Conductor::trouble_of_rest(const std::string& address, const Trouble& message, Time now) {
  const auto rest = find_rest(message.session.number);
  if (message.session.gateway != options_.gateway || rest == resting_.end()) return;
  const std::vector<Hop> hops = rest->second.hops;
  const auto hop = std::ranges::find(hops, address, &Hop::address);
  if (hop == hops.end()) return;
  end_rest(rest->first);
  if (message.fault == Fault::kBroken) blame(address, now);
  if (message.fault == Fault::kDamaged && hop != hops.begin()) {
    blame(std::prev(hop)->address, now);
  }
  find_chains(now);
}

void Conductor::end_rests_of(const std::string& address, bool or_mixed) {
  std::vector<Key> ended;
  for (const auto& [key, rest] : resting_) {
    const bool has_it = std::ranges::find(rest.hops, address, &Hop::address) != rest.hops.end();
    if (has_it || (or_mixed && rest.is_mixed)) ended.push_back(key);
  }
  for (const Key key : ended) end_rest(key);
}

void Conductor::watch_rests(Time now) {
  const auto oldest = [this] {
    return std::ranges::min_element(
        resting_, {}, [](const auto& entry) -> const Time& { return entry.second.since; });
  };
  while (!resting_.empty()) {
    const auto first = oldest();
    if (resting_.size() <= kMostRests && now - first->second.since <= kLongestRest) return;
    end_rest(first->first);
  }
}

}  // namespace atl::chain
