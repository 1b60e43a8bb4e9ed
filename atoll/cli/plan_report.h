#pragma once
// What `atoll plan` prints.
#include <nlohmann/json.hpp>
#include <string>

#include "atoll/scaling/plan.h"

namespace atl::cli {

/// For people.
std::string plan_text(const scaling::PlanRequest& request, const scaling::Plan& plan);

/// One object with all of it.
nlohmann::ordered_json plan_json(const scaling::PlanRequest& request, const scaling::Plan& plan,
                                 const std::string& config);

}  // namespace atl::cli
