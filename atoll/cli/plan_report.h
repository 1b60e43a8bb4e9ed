#pragma once
// What `atoll plan` prints.
#include <nlohmann/json.hpp>
#include <string>

#include "atoll/plan/plan.h"

namespace atl::cli {

/// For people.
std::string plan_text(const plan::PlanRequest& request, const plan::Plan& plan);

/// One object with all of it.
nlohmann::ordered_json plan_json(const plan::PlanRequest& request, const plan::Plan& plan,
                                 const std::string& config);

}  // namespace atl::cli
