#include "atoll/laws/wall_clock.h"

#include <cmath>

#include "atoll/base/error.h"

namespace atl::laws {
namespace {

/// One all-reduce of so many bits among chips of which `share` is one's own part.
double all_reduce_s(double model_bits, const Network& network, double share) {
  return 2 * model_bits / (network.gbps * 1e9) * (1 - share) + network.latency_s;
}

}  // namespace

double communication_s(const TrainingPlan& plan, const Network& between) {
  const double model_bits = plan.bits * plan.params;
  const double every_step_s = all_reduce_s(model_bits, between, 1 / plan.chips) * plan.steps();
  if (plan.replicas == 0) return every_step_s;
  const double outer_s = all_reduce_s(plan.outer_bits * plan.params, between, 1 / plan.chips) *
                         plan.steps() / plan.sync_every;
  if (plan.replicas == 1) return every_step_s + outer_s;
  return all_reduce_s(model_bits, kNetworks[0], plan.replicas / plan.chips) * plan.steps() +
         outer_s;
}

void check(const TrainingPlan& plan) {
  const auto require = [](bool condition, const char* message) {
    if (!condition) throw UsageError(message);
  };
  const auto is_positive = [](double value) { return std::isfinite(value) && value > 0; };
  require(is_positive(plan.params), "--params must be more than 0");
  require(is_positive(plan.tokens), "--tokens must be more than 0");
  require(is_positive(plan.batch_tokens) && plan.batch_tokens <= plan.tokens,
          "--batch-tokens must be more than 0 and at most --tokens");
  require(is_positive(plan.flops_per_second), "--chip-tflops must be more than 0");
  require(std::isfinite(plan.chips) && plan.chips >= 1 && plan.chips >= plan.replicas,
          "--chips must be 1 or more, and one or more for each replica");
}

}  // namespace atl::laws
