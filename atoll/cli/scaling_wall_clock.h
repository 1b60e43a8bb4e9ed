#pragma once
// What `atoll scaling simulate` says of the idealised wall-clock.
#include <nlohmann/json.hpp>
#include <vector>

#include "atoll/laws/wall_clock.h"

namespace atl::cli {

nlohmann::ordered_json wall_clock_json(const std::vector<laws::TrainingPlan>& plans);
/// Nothing where there are no plans.
void print_wall_clock(const std::vector<laws::TrainingPlan>& plans);

}  // namespace atl::cli
