#include "atoll/collective/events.h"

#include <fmt/format.h>

namespace atl::collective {

std::string CoordinatorLost::sentence() const {
  return fmt::format(
      "the coordinator is not there ({}); training goes on as far as it can, and waits {:.0f} s "
      "for it at most (swarm.return_patience)",
      reason, patience_s);
}

std::string CoordinatorBack::sentence() const { return "the coordinator is back"; }

std::string AddressUnreachable::sentence() const {
  return fmt::format(
      "the coordinator cannot call this island at {}, where others are told that it is: {}; it "
      "calls them itself, or meets them at a relay (--advertise names another address)",
      address, reason);
}

std::string WaitBegun::sentence() const { return reason; }

std::string WaitOver::sentence() const { return "the wait is over: rounds go on"; }

}  // namespace atl::collective
