#include "atoll/coordinator/outliers.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

namespace atl::swarm {
namespace {

using Contributed = Outliers::Contributed;
using Outlier = Outliers::Outlier;

/// There is one.
double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Usual {
  double norm = 0;
  double per_token = 0;

  bool is_exceeded(const Contributed& one, double factor) const {
    return norm > 0 && one.norm > factor * norm && one.per_token() > factor * per_token;
  }
};

/// There is at least one.
Usual usual_of(const std::vector<Contributed>& some) {
  std::vector<double> norms;
  std::vector<double> per_token;
  for (const Contributed& one : some) {
    norms.push_back(one.norm);
    per_token.push_back(one.per_token());
  }
  return {median(std::move(norms)), median(std::move(per_token))};
}

/// By the last of all, or of one member; nothing where too few are known.
std::optional<Usual> usual_of(const Outliers::Norms& known, std::optional<int32_t> number) {
  std::vector<Contributed> last;
  for (size_t i = known.size(); i > 0 && last.size() < Outliers::kUsual; --i) {
    const Contributed& one = known[i - 1];
    if (!number || one.number == *number) last.push_back(one);
  }
  if (last.size() < Outliers::kLeastKnown) return std::nullopt;
  return usual_of(last);
}

/// Beside the mean of those that are `judged`, each at unit length; by their places.
std::vector<double> alignments(const std::vector<double>& cosines, size_t count,
                               const std::vector<size_t>& judged) {
  double whole = 0;            // The square of the sum of all of them.
  std::vector<double> to_all;  // Of each its product with that sum.
  for (const size_t i : judged) {
    double sum = 0;
    for (const size_t j : judged) sum += cosines[i * count + j];
    to_all.push_back(sum);
    whole += sum;
  }
  std::vector<double> found;
  for (size_t i = 0; i < judged.size(); ++i) {
    const double own = cosines[judged[i] * count + judged[i]];  // 1, or 0 of zeros.
    const double square = whole - 2 * to_all[i] + own;
    found.push_back(square > 1e-9 ? (to_all[i] - own) / std::sqrt(square) : 0);
  }
  return found;
}

std::vector<Outlier> turned_away(std::span<const Contributed> all,
                                 const Outliers::Compared& compared,
                                 const std::vector<size_t>& judged) {
  const std::vector<double> aligned = alignments(compared.cosines, all.size(), judged);
  const double usual = median(aligned);
  const double chance =
      1 / std::sqrt(static_cast<double>(std::max<int64_t>(compared.num_values, 1)));
  std::vector<Outlier> found;
  if (usual < std::max(Outliers::kLeastAlignment, Outliers::kChances * chance)) return found;
  std::vector<double> weights;
  for (const size_t i : judged) weights.push_back(static_cast<double>(all[i].weight));
  const double usual_weight = median(weights);
  for (size_t i = 0; i < judged.size(); ++i) {
    const double less = std::sqrt(std::min(1.0, weights[i] / usual_weight));
    if (aligned[i] >= Outliers::kUnlike * less * usual) continue;
    found.push_back({all[judged[i]].number, Outliers::Offence::kDirection, aligned[i], usual});
  }
  return found;
}

}  // namespace

std::vector<Outlier> Outliers::judge(const Norms& known, std::span<const Contributed> all,
                                     const Compared& compared) const {
  if (factor_ == 0) return {};
  std::vector<Outlier> found = too_large(known, all);
  if (2 * found.size() > all.size()) found = too_large_beside_others(all);
  std::vector<size_t> judged;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_out = std::ranges::find(found, all[i].number, &Outlier::number) != found.end();
    if (!is_out) judged.push_back(i);
  }
  if (compared.cosines.empty() || judged.size() < kFewContributors) return found;
  std::ranges::copy(turned_away(all, compared, judged), std::back_inserter(found));
  return found;
}

std::vector<Outlier> Outliers::too_large(const Norms& known,
                                         std::span<const Contributed> all) const {
  const auto usual = usual_of(known, std::nullopt);
  if (!usual) return too_large_beside_others(all);
  std::vector<Outlier> found;
  for (const Contributed& one : all) {
    if (!usual->is_exceeded(one, factor_)) continue;
    Outlier outlier{one.number, Offence::kNorm, one.norm, usual->norm};
    if (all.size() < kFewContributors) {
      const auto own = usual_of(known, one.number);
      if (!own || !own->is_exceeded(one, factor_)) continue;
      outlier.usual = std::max(outlier.usual, own->norm);
    }
    found.push_back(outlier);
  }
  return found;
}

std::vector<Outlier> Outliers::too_large_beside_others(std::span<const Contributed> all) const {
  std::vector<Outlier> found;
  if (all.size() < kFewContributors) return found;
  for (const Contributed& one : all) {
    std::vector<Contributed> others(all.begin(), all.end());
    std::erase(others, one);
    const Usual usual = usual_of(others);
    if (!usual.is_exceeded(one, factor_)) continue;
    found.push_back({one.number, Offence::kNorm, one.norm, usual.norm});
  }
  return found;
}

void Outliers::remember(Norms& known, const Contributed& one) {
  known.push_back(one);
  if (known.size() > kMemory) known.pop_front();
}

}  // namespace atl::swarm
