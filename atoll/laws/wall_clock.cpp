#include "atoll/laws/wall_clock.h"

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
  if (plan.batch_tokens > plan.tokens) {
    throw UsageError("--batch-tokens must be more than 0 and at most --tokens");
  }
  if (plan.chips < plan.replicas) {
    throw UsageError("--chips must be 1 or more, and one or more for each replica");
  }
}

std::vector<TrainingPlan> plans_of(const TrainingPlan& plan, const std::string& method) {
  check(plan);
  TrainingPlan one = plan;
  if (method == "data_parallel") one.replicas = 0;
  if (!method.empty()) return {one};
  std::vector<TrainingPlan> plans;
  for (const double replicas : {0.0, 1.0, plan.replicas}) {
    one.replicas = replicas;
    if (plans.empty() || plans.back().replicas != replicas) plans.push_back(one);
  }
  return plans;
}

}  // namespace atl::laws
