#include "atoll/coordinator/links.h"

#include <algorithm>
#include <utility>

namespace atl::swarm {

Links::Reports& Links::reports_of(int32_t member, int32_t other) {
  State& state = states_[std::minmax(member, other)];
  return member < other ? state.low : state.high;
}

bool Links::broke(int32_t member, int32_t other, Time now) {
  Reports& own = reports_of(member, other);
  if (std::exchange(own.is_down, true)) return false;  // It has tried again, in vain.
  own.num_breaks += 1;
  if (own.num_breaks <= reports_of(other, member).num_breaks) return false;
  const Pair pair = std::minmax(member, other);
  states_.at(pair).since = now;
  told_.erase(pair);
  return true;
}

bool Links::mistrust(const Pair& pair, int64_t round, const std::vector<int32_t>& members) {
  if (reach_each_other(members, {pair})) return false;  // It does without that link.
  Mistrust& mistrust = mistrusted_[pair];
  if (round <= mistrust.last_round) return mistrust.num_rounds > 0;
  mistrust.num_rounds = mistrust.num_rounds < 0
                            ? 0
                            : std::clamp<int64_t>(2 * mistrust.num_rounds, 1, kLongestMistrust);
  mistrust.last_round = round + mistrust.num_rounds - 1;
  return mistrust.num_rounds > 0;
}

bool Links::stands(int32_t member, int32_t other, net::Way way) {
  Reports& own = reports_of(member, other);
  const Pair pair = std::minmax(member, other);
  State& state = states_.at(pair);
  own.is_down = false;
  const bool was_broken = state.is_broken();
  state.num_over = std::max(state.num_over, own.num_breaks);
  const auto found = mistrusted_.find(pair);
  const bool is_trusted_anew = way == net::Way::kRelayed && found != mistrusted_.end() &&
                               !std::exchange(found->second.has_met, true);
  if (is_trusted_anew) found->second.last_round = -1;
  return (was_broken && !state.is_broken()) || is_trusted_anew;
}

void Links::carried(const std::vector<int32_t>& members) {
  const auto has_carried = [&](const auto& entry) {
    return !reach_each_other(members, {entry.first});
  };
  std::erase_if(mistrusted_, has_carried);
  // The ends agree, and count on from here.
  std::erase_if(states_, [&](const auto& entry) {
    const State& state = entry.second;
    return has_carried(entry) && !state.low.is_down && !state.high.is_down;
  });
}

void Links::forget_reports_of(int32_t number) {
  std::erase_if(states_, [&](const auto& entry) { return is_of(entry.first, number); });
}

void Links::forget(int32_t number) {
  forget_reports_of(number);
  std::erase_if(mistrusted_, [&](const auto& entry) { return is_of(entry.first, number); });
  std::erase_if(told_, [&](const Pair& pair) { return is_of(pair, number); });
}

Pairs Links::closed_in(int64_t round) const {
  Pairs pairs = broken();
  for (const auto& [pair, mistrust] : mistrusted_) {
    if (round <= mistrust.last_round) pairs.insert(pair);
  }
  return pairs;
}

Pairs Links::broken() const {
  Pairs pairs;
  for (const auto& [pair, state] : states_) {
    if (state.is_broken()) pairs.insert(pair);
  }
  return pairs;
}

bool Links::is_broken(const Pair& pair) const {
  const auto found = states_.find(pair);
  return found != states_.end() && found->second.is_broken();
}

bool Links::any_broken() const {
  return std::ranges::any_of(states_, [](const auto& entry) { return entry.second.is_broken(); });
}

bool Links::may_mend(const std::vector<int32_t>& members, Time now) const {
  return std::ranges::any_of(states_, [&](const auto& entry) {
    const auto& [pair, state] = entry;
    return state.is_broken() && now - state.since < kMending && has(members, pair.first) &&
           has(members, pair.second);
  });
}

std::vector<Links::Pair> Links::news(int64_t round, const std::vector<int32_t>& members,
                                     const std::set<int32_t>& wanting) {
  std::vector<Pair> out;
  for (const Pair& pair : closed_in(round)) {
    const auto& [a, b] = pair;
    const bool is_one_left_out = has(members, a) != has(members, b);
    if (!wanting.contains(a) || !wanting.contains(b) || !is_one_left_out) continue;
    if (told_.insert(pair).second) out.push_back(pair);
  }
  return out;
}

}  // namespace atl::swarm
