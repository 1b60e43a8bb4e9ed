#pragma once
// The settings with which `atoll train` does what was planned.
#include <string>

#include "atoll/plan/plan.h"
#include "atoll/run/config.h"

namespace atl::cli {

/// As a configuration file: what differs from the defaults. It has passed run::check().
std::string planned_config(const plan::PlanRequest& request, const plan::Plan& plan);

}  // namespace atl::cli
