#include "atoll/swarm/unanswered.h"

#include <fmt/format.h>

namespace atl::swarm {

std::string nobody_answers(const std::string& coordinator, const std::string& why) {
  return fmt::format(
      "nobody answers at {}{}: see that `atoll coordinate` runs there and that this is its "
      "address; it is tried again",
      coordinator, why.empty() ? why : fmt::format(" ({})", why));
}

}  // namespace atl::swarm
