#pragma once
// The settings with which `atoll train` does what was planned.
#include <string>

#include "atoll/run/config.h"
#include "atoll/scaling/plan.h"

namespace atl::cli {

/// As a configuration file: what differs from the defaults. It has passed run::check().
std::string planned_config(const scaling::PlanRequest& request, const scaling::Plan& plan);

}  // namespace atl::cli
