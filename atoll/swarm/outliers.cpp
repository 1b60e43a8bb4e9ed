#include "atoll/swarm/outliers.h"

#include <algorithm>

namespace atl::swarm {
namespace {

void remember(std::deque<double>& norms, double norm) {
  norms.push_back(norm);
  if (norms.size() > Outliers::kMemory) norms.pop_front();
}

/// 0 where too few are known.
double median(const std::deque<double>& norms) {
  if (norms.size() < Outliers::kLeastKnown) return 0;
  std::vector<double> sorted(norms.begin(), norms.end());
  std::ranges::sort(sorted);
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace

std::vector<Outliers::Outlier> Outliers::find(const Fragment& fragment,
                                              std::span<const Contributed> all) const {
  std::vector<Outlier> found;
  if (factor_ == 0) return found;
  for (const auto& [number, norm] : all) {
    const auto member = fragment.members.find(number);
    double usual = 0;
    if (all.size() >= kFewContributors) {
      usual = median(fragment.norms);
    } else if (member != fragment.members.end()) {
      usual = median(member->second.norms);
    }
    if (usual > 0 && norm > factor_ * usual) found.push_back({number, norm, usual});
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
  for (const auto& [number, norm] : all) {
    Member& member = known.members[number];
    const bool is_large = std::ranges::find(large, number, &Outlier::number) != large.end();
    if (!is_large) member.num_left_out = 0;
    remember(member.norms, norm);
    remember(known.norms, norm);
  }
}

void Outliers::forget(int32_t number) {
  for (auto& [fragment, known] : fragments_) known.members.erase(number);
}

}  // namespace atl::swarm
