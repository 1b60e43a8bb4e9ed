#pragma once
// For tests: what outlives a process of a simulated island.
#include <map>
#include <vector>

#include "atoll/testing/simulated_plan.h"

namespace atl::collective {

/// Checkpoints: the fragments' values after a step.
using Disk = std::map<int64_t, std::vector<Theta>>;

inline Digest digest_of(const std::vector<Theta>& fragments) {
  Bytes all;
  for (const Theta& theta : fragments) {
    const Digest digest = digest_of(theta);
    all.insert(all.end(), digest.begin(), digest.end());
  }
  return sha256(all);
}

/// Keeps the first checkpoint and the newest three.
class Checkpoints {
 public:
  Checkpoints(Disk& disk, const Plan& plan) : disk_(disk), plan_(plan) {}

  /// A round of a period, with which its fragment came to the period's end. A checkpoint is of all
  /// of them.
  void ended(const Commit& commit, const Theta& theta) {
    const int64_t period = plan_.in_flight;
    const int64_t end = (commit.round / period + 1) * period;
    auto& fragments = begun_[end];
    fragments[commit.fragment] = theta;
    if (std::ssize(fragments) < period) return;
    if (end / period % plan_.checkpoint_every == 0) {
      std::vector<Theta> all;
      for (auto& [f, values] : fragments) all.push_back(std::move(values));
      keep(end, std::move(all));
    }
    begun_.erase(begun_.begin(), std::next(begun_.find(end)));
  }
  /// Elastic: of a run that goes from one step to the other.
  bool is_due_between(int64_t before, int64_t step) const {
    return before / plan_.checkpoint_every != step / plan_.checkpoint_every;
  }
  void keep(int64_t step, std::vector<Theta> all) {
    disk_[step] = std::move(all);
    while (disk_.size() > 4) disk_.erase(std::next(disk_.begin()));
  }

 private:
  Disk& disk_;
  const Plan& plan_;
  std::map<int64_t, std::map<int32_t, Theta>> begun_;  // That are not complete, by step.
};

}  // namespace atl::collective
