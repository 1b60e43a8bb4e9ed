#pragma once
// Task files and documents as values: JSON whose keys stay in their order, as Python's do.
#include <nlohmann/json.hpp>

namespace atl::tasks {

using Json = nlohmann::ordered_json;

}  // namespace atl::tasks
