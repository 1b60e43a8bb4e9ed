#pragma once
#include <string>

namespace atl::swarm {

/// The version of this program, as Hello carries it.
std::string program_version();

}  // namespace atl::swarm
