#include "atoll/coordinator/links.h"

#include <algorithm>
#include <utility>

namespace atl::swarm {

bool Links::broke(const Pair& pair, Time now) {
  if (!broken_.emplace(pair, now).second) return false;
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

bool Links::stands(const Pair& pair, net::Way way) {
  const auto found = mistrusted_.find(pair);
  const bool is_trusted_anew = way == net::Way::kRelayed && found != mistrusted_.end() &&
                               !std::exchange(found->second.has_met, true);
  if (is_trusted_anew) found->second.last_round = -1;
  return broken_.erase(pair) > 0 || is_trusted_anew;
}

void Links::carried(const std::vector<int32_t>& members) {
  std::erase_if(mistrusted_,
                [&](const auto& entry) { return !reach_each_other(members, {entry.first}); });
}

void Links::forget_reports_of(int32_t number) {
  std::erase_if(broken_, [&](const auto& entry) { return is_of(entry.first, number); });
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
  for (const auto& [pair, since] : broken_) pairs.insert(pair);
  return pairs;
}

bool Links::may_mend(const std::vector<int32_t>& members, Time now) const {
  return std::ranges::any_of(broken_, [&](const auto& entry) {
    const auto& [pair, since] = entry;
    return now - since < kMending && has(members, pair.first) && has(members, pair.second);
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
