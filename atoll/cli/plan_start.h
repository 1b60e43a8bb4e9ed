#pragma once
// With which words each island of a plan is started, beside the settings that all have.
#include <string>
#include <vector>

#include "atoll/plan/plan.h"

namespace atl::cli {

/// train.shard of all islands of several devices that take part, where they have the same; else
/// "none", and start_words() has each one's.
std::string shared_shard(const plan::PlanRequest& request, const plan::PlanChoice& choice);

/// "--processes-per-island 8 --train.device=cuda"; `place` is in the choice. May be empty.
std::string start_words(const plan::PlanRequest& request, const plan::PlanChoice& choice,
                        size_t place);

/// "zurich, oslo: --processes-per-island 8 --train.device=cuda": islands that are started alike.
std::vector<std::string> start_lines(const plan::PlanRequest& request,
                                     const plan::PlanChoice& choice);

}  // namespace atl::cli
