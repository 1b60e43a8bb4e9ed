#pragma once
#include <cstdint>

namespace atl::swarm {

/// What the failure of a member is the end of.
enum class Ending : uint8_t {
  kFailure,     // Of the run, as far as this member knows.
  kMembership,  // Of that alone: it may join again.
  kComplete,    // Of a run whose last step is committed.
};

}  // namespace atl::swarm
