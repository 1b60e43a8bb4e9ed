#include "atoll/laws/published.h"

#include <cmath>

#include "atoll/laws/published_loss.inc"

namespace atl::laws {

double PublishedLaw::predict(double params, double at_replicas) const {
  return A * std::pow(params, alpha) * (replicas == kAllNumbers ? std::pow(at_replicas, beta) : 1);
}

const std::vector<Run>& published_losses() {
  static const std::vector<Run> runs =
      parse_table(kPublishedLoss, "the published table of losses").runs;
  return runs;
}

}  // namespace atl::laws
