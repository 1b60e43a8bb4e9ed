#pragma once
#include <string>

namespace atl::cli {
/// "atoll 0.1.0".
inline std::string version_text() { return std::string("atoll ") + ATOLL_VERSION; }
}  // namespace atl::cli
