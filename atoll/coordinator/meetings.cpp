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

void Meetings::broke(const Pair& pair, Time now, bool is_mistrusted) {
  detours_.erase(pair);
  Wish& wish = wishes_.try_emplace(pair, Wish{.due = now}).first->second;
  if (!std::exchange(wish.is_wanted, true)) {
    if (now - wish.due > kLongestPause) wish = Wish{.due = now};
    if (wish.num_told < kBurst) wish.due = now;
    wish.is_new = true;
  }
  wish.is_mistrusted = wish.is_mistrusted || is_mistrusted;
}

void Meetings::stands(const Pair& pair, net::Way way) {
  const auto found = wishes_.find(pair);
  const bool is_enough =
      found == wishes_.end() || !found->second.is_mistrusted || way == net::Way::kRelayed;
  if (!is_enough) return;
  if (found != wishes_.end()) {
    found->second.is_wanted = false;
    found->second.is_mistrusted = false;
  }
  if (way == net::Way::kDirect) {
    detours_.erase(pair);
  } else {
    detours_[pair] = {.way = way, .relay = found == wishes_.end() ? "" : found->second.last};
  }
}

bool Meetings::any_wanted() const {
  return std::ranges::any_of(wishes_, [](const auto& entry) { return entry.second.is_wanted; });
}

void Meetings::forget(int32_t number) {
  const auto is_its = [&](const auto& entry) { return is_of(entry.first, number); };
  std::erase_if(wishes_, is_its);
  std::erase_if(detours_, is_its);
}

bool Meetings::any_due(Time now) const {
  return std::ranges::any_of(wishes_, [&](const auto& entry) {
    return entry.second.is_wanted && now >= entry.second.due;
  });
}

void Meetings::forget_members() {
  wishes_.clear();
  detours_.clear();
}

std::vector<Meetings::Meeting> Meetings::take_due(const std::vector<int32_t>& here,
                                                  const std::vector<Host>& hosts, Time now) {
  std::map<std::string, int64_t> load;
  for (const auto& [pair, detour] : detours_) {
    if (detour.way == net::Way::kRelayed) load[detour.relay] += 1;
  }
  std::vector<Meeting> out;
  for (auto& [pair, wish] : wishes_) {
    if (!wish.is_wanted || now < wish.due) continue;
    if (!has(here, pair.first) || !has(here, pair.second)) continue;
    const std::vector<Relay> places = places_for(pair, hosts);
    if (places.empty()) continue;
    // The one that was tried least, and of these one that is there for it, with fewest others.
    const Relay& place = *std::ranges::min_element(places, {}, [&](const Relay& relay) {
      return std::tuple(wish.tries[relay.name], relay.host.has_value(), load[relay.name],
                        relay.name);
    });
    wish.num_told += 1;
    if (std::exchange(wish.is_new, false)) wish.waited_until = now + kPatience;
    wish.due = now + wish.pause;
    wish.pause = std::min(2 * wish.pause, kLongestPause);
    wish.tries[place.name] += 1;
    wish.last = place.name;
    load[place.name] += 1;
    out.push_back({.pair = pair,
                   .relay = place.address,
                   .host = place.host,
                   .circuit = next_circuit(),
                   .may_punch = !wish.is_mistrusted});
  }
  return out;
}

std::vector<Meetings::Relay> Meetings::places_for(const Pair& pair,
                                                  const std::vector<Host>& hosts) const {
  std::vector<Relay> places;
  for (const auto& [connection, relay] : relays_) places.push_back(relay);
  for (const Host& host : hosts) {
    if (is_of(pair, host.number)) continue;
    places.push_back({.name = host.name, .address = host.address, .host = host.number});
  }
  return places;
}

bool Meetings::are_expected(const std::vector<int32_t>& members, Time now) const {
  return std::ranges::any_of(wishes_, [&](const auto& entry) {
    const auto& [pair, wish] = entry;
    return wish.is_wanted && now < wish.waited_until && has(members, pair.first) &&
           has(members, pair.second);
  });
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
