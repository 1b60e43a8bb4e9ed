#pragma once
// A line of rounds.jsonl.
#include <string>

#include "atoll/sync/strategy.h"

namespace atl::island {

std::string to_json(const sync::RoundRecord& record);

}  // namespace atl::island
