#pragma once
// Why there is no plan. Pure.
#include "atoll/plan/plan_candidates.h"
#include "atoll/plan/plan_loss.h"
#include "atoll/plan/plan_request.h"
#include "atoll/plan/plan_search.h"

namespace atl::plan {

/// Throws InputError: memory, tokens, loss, bandwidth or time is short, and by how much; or there
/// is no law. There is no feasible choice.
[[noreturn]] void refuse_plan(const PlanRequest& request, const PlanLoss& loss,
                              Candidates& candidates, const PlanSearch& search);

}  // namespace atl::plan
