#pragma once
// For tests: who is left out of a round, by definition: from all rounds of a run so far, one by
// one. Shares no code with Outliers.
#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "atoll/swarm/outliers.h"

namespace atl::swarm {

class OutlierDefinition {
 public:
  using Contributed = Outliers::Contributed;
  struct Round {
    int32_t fragment = 0;
    std::vector<Contributed> all;  // Those who were left out too.
    std::set<int32_t> left_out;
  };

  /// Of one attempt.
  std::set<int32_t> judge(int32_t fragment, const std::vector<Contributed>& all) const {
    const std::set<int32_t> large = large_ones(past.size(), fragment, all);
    if (large.size() > all.size() - large.size()) return {};
    std::set<int32_t> out;
    for (const int32_t number : large) {
      if (num_left_out(fragment, number) < 3) out.insert(number);
    }
    return out;
  }
  /// Until an attempt has none.
  std::set<int32_t> judge_all_attempts(int32_t fragment, std::vector<Contributed> all) const {
    std::set<int32_t> left_out;
    while (true) {
      const std::set<int32_t> more = judge(fragment, all);
      if (more.empty()) return left_out;
      left_out.insert(more.begin(), more.end());
      std::erase_if(all, [&](const Contributed& one) { return more.contains(one.number); });
    }
  }

  std::vector<Round> past;

 private:
  /// By their norms, and for each token too.
  std::set<int32_t> large_ones(size_t before, int32_t fragment,
                               const std::vector<Contributed>& all) const {
    const auto norm = [](const Contributed& one) { return one.norm; };
    const auto per_token = [](const Contributed& one) {
      return one.norm / static_cast<double>(one.weight);
    };
    std::set<int32_t> both;
    const std::set<int32_t> dense = large_by(before, fragment, all, per_token);
    for (const int32_t number : large_by(before, fragment, all, norm)) {
      if (dense.contains(number)) both.insert(number);
    }
    return both;
  }
  template <typename Measure>
  std::set<int32_t> large_by(size_t before, int32_t fragment, const std::vector<Contributed>& all,
                             Measure measure) const {
    std::set<int32_t> large;
    for (const Contributed& one : all) {
      const int32_t number = one.number;
      std::vector<double> norms;
      for (size_t i = 0; i < before; ++i) {
        if (past[i].fragment != fragment) continue;
        for (const Contributed& other : past[i].all) {
          const bool is_of_interest = all.size() >= 4 || other.number == number;
          if (is_of_interest && !past[i].left_out.contains(other.number)) {
            norms.push_back(measure(other));
          }
        }
      }
      if (norms.size() > 20) norms.erase(norms.begin(), norms.end() - 20);
      if (norms.size() < 5) continue;
      std::ranges::sort(norms);
      const double usual = (norms[(norms.size() - 1) / 2] + norms[norms.size() / 2]) / 2;
      if (usual > 0 && measure(one) > 10 * usual) large.insert(number);
    }
    return large;
  }
  /// Since it was last in a round with a norm that was not too large.
  int num_left_out(int32_t fragment, int32_t number) const {
    int count = 0;
    for (size_t i = past.size(); i > 0; --i) {
      const Round& round = past[i - 1];
      if (round.fragment != fragment) continue;
      if (round.left_out.contains(number)) count += 1;
      std::vector<Contributed> rest = round.all;
      std::erase_if(rest,
                    [&](const Contributed& one) { return round.left_out.contains(one.number); });
      const bool was_in = std::ranges::find(rest, number, &Contributed::number) != rest.end();
      if (was_in && !large_ones(i - 1, fragment, rest).contains(number)) break;
    }
    return count;
  }
};

}  // namespace atl::swarm
