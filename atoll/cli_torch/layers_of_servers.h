#pragma once
// Where an adapter's model has its layers when servers of a swarm have them (--servers).
#include <memory>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/cli_torch/swarm_place.h"
#include "atoll/island/materials.h"

namespace atl::cli {

class LayersOfServers {
 public:
  /// The clock outlives it; it outlives what finder() finds.
  explicit LayersOfServers(const Clock& clock) : clock_(clock) {}

  /// By the settings' adapter.servers, as a gateway of that swarm. An invite makes this machine
  /// one; its certificate is kept in the run's folder.
  island::FindServers finder() const;

 private:
  const Clock& clock_;
  mutable std::vector<std::unique_ptr<SwarmPlace>> places_;
};

}  // namespace atl::cli
