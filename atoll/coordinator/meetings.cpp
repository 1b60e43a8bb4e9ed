#include "atoll/coordinator/meetings.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace atl::swarm {

std::string Meetings::relay_came(Connection connection, const std::string& name,
                                 const std::string& address, std::optional<Connection>& replaced) {
  const auto same =
      std::ranges::find_if(relays_, [&](const auto& entry) { return entry.second.name == name; });
  if (same != relays_.end()) {
    replaced = same->first;
    relays_.erase(same);
  }
  if (relays_.size() >= kMostRelays) return fmt::format("this run has {} relays", kMostRelays);
  relays_[connection] = {.name = name, .address = address};
  for (auto& [pair, wish] : wishes_) {  // Who waits for the next try need not wait any longer.
    if (!wish.tries.contains(name)) wish.due = Time{};
  }
  return {};
}

std::optional<std::string> Meetings::relay_went(Connection connection) {
  const auto relay = relays_.extract(connection);
  return relay.empty() ? std::nullopt : std::optional(std::move(relay.mapped().name));
}

std::vector<Meetings::Connection> Meetings::relays() const {
  std::vector<Connection> out;
  for (const auto& [connection, relay] : relays_) out.push_back(connection);
  return out;
}

std::vector<RelayStatus> Meetings::status() const {
  std::vector<RelayStatus> out;
  for (const auto& [connection, relay] : relays_) {
    out.push_back({.name = relay.name, .address = relay.address});
  }
  std::ranges::sort(out, {}, &RelayStatus::name);
  return out;
}

void Meetings::broke(const Pair& pair, Time now) {
  detours_.erase(pair);
  wishes_.try_emplace(pair, Wish{.due = now});
}

void Meetings::stands(const Pair& pair, net::Way way) {
  const auto wish = wishes_.extract(pair);
  if (way == net::Way::kDirect) {
    detours_.erase(pair);
  } else {  // Of the two that say so, the first has ended the wish.
    Detour& detour = detours_[pair];
    detour.way = way;
    if (!wish.empty()) detour.relay = std::move(wish.mapped().last);
  }
}

void Meetings::forget(int32_t number) {
  const auto is_its = [&](const auto& entry) { return is_of(entry.first, number); };
  std::erase_if(wishes_, is_its);
  std::erase_if(detours_, is_its);
}

std::vector<Meetings::Meeting> Meetings::take_due(Time now) {
  std::vector<Meeting> out;
  for (auto& [pair, wish] : wishes_) {
    if (now < wish.due) continue;
    const Relay* const relay = best_for(wish);
    if (relay == nullptr) continue;
    wish.due = now + wish.pause;
    wish.pause = std::min(2 * wish.pause, kLongestPause);
    wish.tries[relay->name] += 1;
    wish.last = relay->name;
    out.push_back({.pair = pair, .relay = relay->address, .circuit = next_circuit()});
  }
  return out;
}

/// The one that was tried least for this pair, and of these the one that has fewest others.
const Meetings::Relay* Meetings::best_for(const Wish& wish) const {
  std::map<std::string, int64_t> load;
  for (const auto& [pair, detour] : detours_) {
    if (detour.way == net::Way::kRelayed) load[detour.relay] += 1;
  }
  const auto tries = [&](const std::string& name) {
    const auto found = wish.tries.find(name);
    return found == wish.tries.end() ? 0 : found->second;
  };
  const auto best = std::ranges::min_element(relays_, {}, [&](const auto& entry) {
    const std::string& name = entry.second.name;
    return std::tuple(tries(name), load[name], name);
  });
  return best == relays_.end() ? nullptr : &best->second;
}

const Meetings::Detour* Meetings::detour(const Pair& pair) const {
  const auto found = detours_.find(pair);
  return found == detours_.end() ? nullptr : &found->second;
}

net::CircuitId Meetings::next_circuit() {
  num_circuits_ += 1;
  const Digest digest =
      Sha256().update(secret_).update(fmt::format("circuit {}", num_circuits_)).finish();
  net::CircuitId circuit;
  std::copy_n(digest.begin(), circuit.size(), circuit.begin());
  return circuit;
}

}  // namespace atl::swarm
