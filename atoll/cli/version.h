#pragma once
#include <string>

namespace atl::cli {

/// "atoll 0.1.0".
std::string version_text();
/// The same, and on further lines of what source and with what it was built, and what of this
/// machine's processor its loops use.
std::string build_text();

}  // namespace atl::cli
