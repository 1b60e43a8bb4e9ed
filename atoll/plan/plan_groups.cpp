#include "atoll/plan/plan_groups.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace atl::plan {

std::vector<std::vector<size_t>> best_groups(std::vector<RankedIsland> islands, size_t count) {
  std::ranges::sort(islands, {}, [](const RankedIsland& island) {
    return std::tuple(-island.flops_per_s, island.line_s, island.place);
  });
  std::vector<std::vector<size_t>> groups;
  std::set<std::pair<double, size_t>> chosen;  // The best lines so far.
  bool is_new = false;
  for (size_t i = 0; i < islands.size(); ++i) {
    const std::pair own(islands[i].line_s, islands[i].place);
    chosen.insert(own);
    const bool is_full = chosen.size() > count;
    const auto worst = std::prev(chosen.end());
    // Slower, and no better connected: it changes nothing.
    is_new |= !is_full || own.first < worst->first;
    if (is_full) chosen.erase(own.first < worst->first ? worst : chosen.find(own));
    const bool is_last = i + 1 == islands.size();
    if (!is_last && islands[i + 1].flops_per_s == islands[i].flops_per_s) continue;
    if (chosen.size() < count || !is_new) continue;
    is_new = false;
    std::vector<size_t> group;
    for (const auto& [line_s, place] : chosen) group.push_back(place);
    std::ranges::sort(group);
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace atl::plan
