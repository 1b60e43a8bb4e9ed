#include "atoll/coordinator/outliers.h"

#include <algorithm>
#include <functional>

namespace atl::swarm {
namespace {

using Contributed = Outliers::Contributed;

void remember(std::deque<Contributed>& norms, const Contributed& one) {
  norms.push_back(one);
  if (norms.size() > Outliers::kMemory) norms.pop_front();
}

/// 0 where too few are known.
template <typename Measure>
double median(const std::deque<Contributed>& norms, Measure measure) {
  if (norms.size() < Outliers::kLeastKnown) return 0;
  std::vector<double> sorted;
  for (const Contributed& one : norms) sorted.push_back(std::invoke(measure, one));
  std::ranges::sort(sorted);
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

std::vector<Outliers::Outlier> Outliers::find(const Fragment& fragment,
                                              std::span<const Contributed> all) const {
  std::vector<Outlier> found;
  if (factor_ == 0) return found;
  for (const Contributed& one : all) {
    const auto member = fragment.members.find(one.number);
    const Norms* known = &fragment.norms;
    if (all.size() < kFewContributors) {
      if (member == fragment.members.end()) continue;
      known = &member->second.norms;
    }
    const double usual = median(*known, &Contributed::norm);
    const double usual_per_token = median(*known, &Contributed::per_token);
    if (usual > 0 && one.norm > factor_ * usual && one.per_token() > factor_ * usual_per_token) {
      found.push_back({one.number, one.norm, usual});
    }
  }
  return found;
}

std::vector<Outliers::Outlier> Outliers::judge(int32_t fragment, std::span<const Contributed> all) {
  Fragment& known = fragments_[fragment];
  std::vector<Outlier> outliers = find(known, all);
  if (2 * outliers.size() > all.size()) return {};
  std::erase_if(outliers, [&](const Outlier& outlier) {
    return known.members[outlier.number].num_left_out >= kPatience;
  });
  for (const Outlier& outlier : outliers) known.members[outlier.number].num_left_out += 1;
  return outliers;
}

void Outliers::committed(int32_t fragment, std::span<const Contributed> all) {
  Fragment& known = fragments_[fragment];
  const std::vector<Outlier> large = find(known, all);  // And they count all the same.
  for (const Contributed& one : all) {
    Member& member = known.members[one.number];
    const bool is_large = std::ranges::find(large, one.number, &Outlier::number) != large.end();
    if (!is_large) member.num_left_out = 0;
    remember(member.norms, one);
    remember(known.norms, one);
  }
}

void Outliers::forget(int32_t number) {
  for (auto& [fragment, known] : fragments_) known.members.erase(number);
}

}  // namespace atl::swarm
