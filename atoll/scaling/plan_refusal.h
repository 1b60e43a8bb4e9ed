#pragma once
// Why there is no plan. Pure.
#include "atoll/scaling/plan_candidates.h"
#include "atoll/scaling/plan_loss.h"
#include "atoll/scaling/plan_request.h"
#include "atoll/scaling/plan_search.h"

namespace atl::scaling {

/// Throws InputError: memory, tokens, loss, bandwidth or time is short, and by how much; or there
/// is no law. There is no feasible choice.
[[noreturn]] void refuse_plan(const PlanRequest& request, const PlanLoss& loss,
                              Candidates& candidates, const PlanSearch& search);

}  // namespace atl::scaling
