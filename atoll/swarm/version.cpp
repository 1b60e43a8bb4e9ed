#include "atoll/swarm/version.h"

namespace atl::swarm {

std::string program_version() { return ATOLL_VERSION; }

}  // namespace atl::swarm
