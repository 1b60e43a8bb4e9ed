#pragma once
// Why there is no plan. Pure.
#include "atoll/scaling/plan_candidates.h"
#include "atoll/scaling/plan_request.h"

namespace atl::scaling {

/// Throws InputError: memory, tokens, loss, bandwidth or time is short, and by how much. There is
/// no feasible choice.
[[noreturn]] void refuse_plan(const PlanRequest& request, Candidates& candidates);

}  // namespace atl::scaling
