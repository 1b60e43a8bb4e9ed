#pragma once
// "I have these islands and these links: what should I train, with which settings, how long, how
// many bytes, what loss?" Sizes, groups of islands and methods are tried (plan_search.h); what is
// better in none of loss, time and bytes is left out. Pure: no files; not thread-safe.
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "atoll/plan/plan_candidates.h"
#include "atoll/plan/plan_request.h"

namespace atl::plan {

struct PlannedRun {
  PlanChoice choice;
  PlannedLoss loss;
};

struct Plan {
  /// A handful, none better than another in loss, time and bytes at once; by falling loss.
  std::vector<PlannedRun> choices;
  size_t recommended = 0;
  std::string why;                 // A sentence or two.
  std::vector<std::string> notes;  // What a reader has to know.

  const PlannedRun& best() const { return choices[recommended]; }
};

/// `runs` are those that request.laws.fit names, if it does. Throws InputError when nothing can be
/// planned: which resource is short, and by how much.
///
/// Recommended is, with a target loss, what reaches it soonest; with a time, what has the lowest
/// loss within it; else what is soonest within 1 % of the lowest loss.
Plan make_plan(const PlanRequest& request, const std::optional<std::vector<laws::Run>>& runs);

/// The place of the recommended one. `choices` is not empty.
size_t recommended_of(const PlanRequest& request, const std::vector<PlanChoice>& choices);

/// "3.2 d", "4.5 h".
std::string span_text(double seconds);

}  // namespace atl::plan
