#pragma once
#include <string>

#include "atoll/base/clock.h"

namespace atl::swarm {

/// After so long without any answer from a coordinator its user is told so.
constexpr Duration kUnanswered = std::chrono::seconds(3);

/// What is told then. `why`: of the last try; may be empty.
std::string nobody_answers(const std::string& coordinator, const std::string& why = {});

}  // namespace atl::swarm
