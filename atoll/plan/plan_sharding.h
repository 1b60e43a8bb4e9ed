#pragma once
// How a run is computed: in which precision, and with which train.shard each island's processes,
// one for each device, hold the training state: the least that fits. Pure.
#include <string>
#include <vector>

#include "atoll/method/train_options.h"
#include "atoll/plan/plan_memory.h"
#include "atoll/plan/plan_request.h"

namespace atl::plan {

/// The run's train.precision: what is asked for, else BF16 where all islands' speeds are of it.
std::string planned_precision(const PlanRequest& request);

/// What memory depends on, but for train.shard.
method::TrainOptions planned_training(const PlanRequest& request, bool is_cpu);

/// A train.shard, and process 0's memory on the device with it, but for activations.
struct PlannedShard {
  std::string shard;
  double bytes_per_param = 0;
  double bytes_per_gathered_param = 0;

  double bytes(const ModelSize& size) const {
    return bytes_per_param * size.params + bytes_per_gathered_param * size.gathered_params;
  }
};

/// Those that the island may have, from "none" on: what is asked for, or all. "zero3" is for CPUs.
/// `kept`: of one parameter, method_memory().
std::vector<PlannedShard> possible_shards(const PlanRequest& request, const PlannedIsland& island,
                                          const PlannedMemory& kept);

/// The first that takes no more than that, else the one that takes least. `shards` is not empty.
const PlannedShard& least_that_fits(const std::vector<PlannedShard>& shards, const ModelSize& size,
                                    double room_bytes);

}  // namespace atl::plan
