// A conductor's texts that are over, and are kept by their servers: who begins as one of them does
// reads only the rest, as the next question of a conversation does.
#include <algorithm>

#include "atoll/chain/conductor.h"

namespace atl::chain {
namespace {

constexpr int64_t kLeastKept = 32;  // Positions: what is less is read again.
constexpr size_t kMostRests = 64;
constexpr Duration kLongestRest = std::chrono::minutes(10);  // After its last use.

}  // namespace

int64_t Conductor::rest(Key key, Time now) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return 0;
  Session& session = found->second;
  const int64_t num_kept =
      std::min(session.num_done, session.text.num_tokens - session.text.num_guessed);
  if (session.hops.empty() || session.is_broken || num_kept < kLeastKept) {
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
  // Its room is had by who lacks some.
  for (auto& [other, waiting] : sessions_) {
    if (waiting.lacks_memory) waiting.retry_at = {};
  }
  return num_kept;
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

bool Conductor::end_rest_of(uint64_t session) {
  const auto found = std::ranges::find_if(
      resting_, [&](const auto& entry) { return entry.second.number == session; });
  if (found == resting_.end()) return false;
  end_rest(found->first);
  return true;
}

void Conductor::end_rests_of(const std::string& address) {
  std::vector<Key> ended;
  for (const auto& [key, rest] : resting_) {
    const bool has_it = std::ranges::find(rest.hops, address, &Hop::address) != rest.hops.end();
    if (has_it || rest.is_mixed) ended.push_back(key);
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
