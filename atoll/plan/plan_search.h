#pragma once
// The search for a plan. With one number of islands, one method and one period larger sizes are
// slower and better: so the largest that keeps a limit of time is found by halving, the smallest
// that reaches a loss by the law, and most ways need no simulation at all: what computing alone
// takes says that they cannot be better. Of all sizes that take the same compute the one with the
// laws' tokens a parameter is best (plan_loss.h); so more tokens are for where memory, or the
// request, allows no larger model, and for between two sizes. Pure; not thread-safe.
#include <limits>
#include <optional>
#include <tuple>
#include <vector>

#include "atoll/plan/plan_candidates.h"

namespace atl::plan {

/// Without a limit of time: so much more loss for an earlier end.
constexpr double kCloseLoss = 1.01;

/// At most.
struct PlanBounds {
  double time_s = std::numeric_limits<double>::infinity();
  double loss = std::numeric_limits<double>::infinity();
  double bytes = std::numeric_limits<double>::infinity();
};

class PlanSearch {
 public:
  /// `candidates` outlives it.
  explicit PlanSearch(Candidates& candidates);

  /// Timed; nothing where none keeps the bounds.
  std::optional<PlanChoice> lowest_loss(const PlanBounds& bounds) const;
  std::optional<PlanChoice> soonest(const PlanBounds& bounds) const;
  /// What reaches the loss and computes in time, whatever its lines: the smallest size of each way,
  /// not timed.
  std::vector<PlanChoice> computing_within(const PlanBounds& bounds) const;
  /// Whether anything fits, into memory and tokens.
  bool has_any() const;

 private:
  /// A way, and sizes that get slower and better.
  struct Branch {
    const PlanWay* way = nullptr;
    const std::vector<PlannedSize>* sizes = nullptr;
    const PlannedSize* larger = nullptr;  // For groups that it does not fit; null: for all.
    // By size: of all tokens, and of the fastest group; infinite where it does not fit.
    std::vector<double> loss;
    std::vector<double> computing_s;
  };
  /// A size of it, with what can be hoped for.
  struct Prospect {
    const Branch* branch = nullptr;
    size_t size = 0;
    double hope = 0;  // Seconds, or nats.

    std::tuple<double, const Branch*, size_t> order() const { return {hope, branch, size}; }
  };

  void add_branch(const PlanWay& way, const std::vector<PlannedSize>& sizes,
                  const PlannedSize* larger);
  bool fits(const std::vector<size_t>& islands, const PlannedSize& size, const PlanWay& way) const;
  std::vector<Prospect> smallest(const PlanBounds& bounds) const;
  std::vector<PlanChoice> choices(const Branch& branch, size_t size,
                                  const PlanBounds& bounds) const;
  std::optional<PlanChoice> fastest(const Branch& branch, size_t size,
                                    const PlanBounds& bounds) const;

  Candidates& candidates_;
  std::vector<Branch> branches_;
};

/// What recommended_of() chooses among, and alternatives to it: sooner with more loss, later with
/// less, with fewer bytes. Empty where nothing keeps the request's limits.
std::vector<PlanChoice> feasible_choices(const PlanGoal& goal, const Candidates& candidates,
                                         const PlanSearch& search);

}  // namespace atl::plan
