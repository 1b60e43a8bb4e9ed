#pragma once
// For tests: who is left out of a round, by definition: from all rounds of a run so far, one by
// one, and from the contributions themselves. Shares no code with Outliers.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "atoll/coordinator/outliers.h"

namespace atl::swarm {

class OutlierDefinition {
 public:
  using Contributed = Outliers::Contributed;
  using Vector = std::vector<float>;
  struct Round {
    int32_t fragment = 0;
    std::vector<Contributed> all;  // Those who were left out too.
    std::set<int32_t> left_out;
  };

  /// Of one attempt; `vectors` in the order of `all`.
  std::set<int32_t> judge(int32_t fragment, const std::vector<Contributed>& all,
                          const std::vector<Vector>& vectors) const {
    std::set<int32_t> out = large_ones(fragment, all);
    std::vector<size_t> rest;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!out.contains(all[i].number)) rest.push_back(i);
    }
    for (const size_t i : rest) {
      if (points_elsewhere(i, rest, all, vectors)) out.insert(all[i].number);
    }
    return out;
  }
  /// Until an attempt has none.
  std::set<int32_t> judge_all_attempts(int32_t fragment, std::vector<Contributed> all,
                                       std::vector<Vector> vectors) const {
    std::set<int32_t> left_out;
    while (true) {
      const std::set<int32_t> more = judge(fragment, all, vectors);
      if (more.empty()) return left_out;
      for (size_t i = all.size(); i-- > 0;) {
        if (!more.contains(all[i].number)) continue;
        left_out.insert(all[i].number);
        all.erase(all.begin() + static_cast<ptrdiff_t>(i));
        vectors.erase(vectors.begin() + static_cast<ptrdiff_t>(i));
      }
    }
  }

  std::vector<Round> past;

 private:
  static double middle(std::vector<double> values) {
    std::ranges::sort(values);
    return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
  }
  static bool is_over(const Contributed& one, const std::vector<Contributed>& those) {
    std::vector<double> norms;
    std::vector<double> per_token;
    for (const Contributed& other : those) {
      norms.push_back(other.norm);
      per_token.push_back(other.norm / static_cast<double>(other.weight));
    }
    return middle(norms) > 0 && one.norm > 10 * middle(norms) &&
           one.norm / static_cast<double>(one.weight) > 10 * middle(per_token);
  }
  /// The last 20 that counted, of all or of one; nothing where there are fewer than 5.
  std::vector<Contributed> last(int32_t fragment, std::optional<int32_t> number) const {
    std::vector<Contributed> counted;
    for (const Round& round : past) {
      if (round.fragment != fragment) continue;
      for (const Contributed& one : round.all) {
        if (!round.left_out.contains(one.number)) counted.push_back(one);
      }
    }
    if (counted.size() > 60) counted.erase(counted.begin(), counted.end() - 60);
    if (number) std::erase_if(counted, [&](const auto& one) { return one.number != *number; });
    if (counted.size() > 20) counted.erase(counted.begin(), counted.end() - 20);
    if (counted.size() < 5) counted.clear();
    return counted;
  }
  std::set<int32_t> large_ones(int32_t fragment, const std::vector<Contributed>& all) const {
    const std::vector<Contributed> before = last(fragment, std::nullopt);
    std::set<int32_t> by_past;
    std::set<int32_t> by_others;
    for (const Contributed& one : all) {
      std::vector<Contributed> others = all;
      std::erase_if(others, [&](const auto& other) { return other.number == one.number; });
      if (all.size() >= 4 && is_over(one, others)) by_others.insert(one.number);
      if (before.empty() || !is_over(one, before)) continue;
      const std::vector<Contributed> own = last(fragment, one.number);
      if (all.size() >= 4 || (!own.empty() && is_over(one, own))) by_past.insert(one.number);
    }
    const bool have_most_grown = by_past.size() > all.size() - by_past.size();
    return before.empty() || have_most_grown ? by_others : by_past;
  }

  /// Its cosine to the mean of the others of `rest`, each as long as any other.
  static double alignment(size_t of, const std::vector<size_t>& rest,
                          const std::vector<Vector>& vectors) {
    const auto length = [](const auto& values) {
      double sum = 0;
      for (const double value : values) sum += value * value;
      return std::sqrt(sum);
    };
    std::vector<double> mean(vectors[of].size());
    for (const size_t other : rest) {
      const double size = length(vectors[other]);
      if (other == of || size == 0) continue;
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += vectors[other][i] / size;
    }
    double product = 0;
    for (size_t i = 0; i < mean.size(); ++i) product += mean[i] * vectors[of][i];
    const double both = length(mean) * length(vectors[of]);
    return length(mean) > 3e-5 && both > 0 ? product / both : 0;
  }
  static bool points_elsewhere(size_t of, const std::vector<size_t>& rest,
                               const std::vector<Contributed>& all,
                               const std::vector<Vector>& vectors) {
    if (rest.size() < 4) return false;
    std::vector<double> alignments;
    std::vector<double> weights;
    for (const size_t i : rest) {
      alignments.push_back(alignment(i, rest, vectors));
      weights.push_back(static_cast<double>(all[i].weight));
    }
    const double usual = middle(alignments);
    if (usual < 0.1 || usual < 5 / std::sqrt(static_cast<double>(vectors[of].size()))) return false;
    const double share = static_cast<double>(all[of].weight) / middle(weights);
    return alignment(of, rest, vectors) < usual / 4 * std::min(1.0, std::sqrt(share));
  }
};

}  // namespace atl::swarm
