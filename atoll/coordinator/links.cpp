#include "atoll/coordinator/links.h"

#include <algorithm>
#include <utility>

namespace atl::swarm {

bool Links::broke(const Pair& pair) {
  if (!broken_.insert(pair).second) return false;
  is_relayed_.erase(pair);
  return true;
}

void Links::mistrust(const Pair& pair, int64_t round, const Ways& ways) {
  if (are_open(ways, {pair})) return;  // It does without that link.
  Mistrust& mistrust = mistrusted_[pair];
  if (round <= mistrust.last_round) return;
  mistrust.num_rounds = std::clamp<int64_t>(2 * mistrust.num_rounds, 1, kLongestMistrust);
  mistrust.last_round = round + mistrust.num_rounds - 1;
}

bool Links::stands(const Pair& pair) { return broken_.erase(pair) > 0; }

void Links::carried(const Ways& ways) {
  std::erase_if(mistrusted_, [&](const auto& entry) { return !are_open(ways, {entry.first}); });
}

void Links::forget_reports_of(int32_t number) {
  std::erase_if(broken_, [&](const Pair& pair) { return is_of(pair, number); });
}

void Links::forget(int32_t number) {
  forget_reports_of(number);
  std::erase_if(mistrusted_, [&](const auto& entry) { return is_of(entry.first, number); });
  std::erase_if(is_relayed_, [&](const auto& entry) { return is_of(entry.first, number); });
}

Pairs Links::closed_in(int64_t round) const {
  Pairs pairs = broken_;
  for (const auto& [pair, mistrust] : mistrusted_) {
    if (round <= mistrust.last_round) pairs.insert(pair);
  }
  return pairs;
}

std::vector<Links::Detour> Links::news(int64_t round, const Ways& ways,
                                       const std::set<int32_t>& wanting) {
  std::vector<Detour> out;
  for (const Pair& pair : closed_in(round)) {
    const auto& [a, b] = pair;
    if (!wanting.contains(a) || !wanting.contains(b) || (!ways.has(a) && !ways.has(b))) continue;
    Detour detour{.pair = pair};
    for (const Relay& relay : ways.relays) {
      if (relay.a == a && relay.b == b) detour.relay = relay;
    }
    const bool is_relayed = detour.relay.has_value();
    const auto [said, is_new] = is_relayed_.try_emplace(pair, is_relayed);
    if (is_new || std::exchange(said->second, is_relayed) != is_relayed) out.push_back(detour);
  }
  return out;
}

}  // namespace atl::swarm
