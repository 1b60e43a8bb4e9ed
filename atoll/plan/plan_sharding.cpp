#include "atoll/plan/plan_sharding.h"

#include <algorithm>

namespace atl::plan {

std::string planned_precision(const PlanRequest& request) {
  if (request.train.precision) return *request.train.precision;
  const bool is_bf16 = std::ranges::all_of(
      request.islands, [](const PlannedIsland& island) { return island.precision == "bf16"; });
  return is_bf16 ? "bf16" : "fp32";
}

method::TrainOptions planned_training(const PlanRequest& request, bool is_cpu) {
  method::TrainOptions train;
  train.sequence_length = request.goal.sequence_length;
  train.device = is_cpu ? "cpu" : "cuda";
  train.precision = planned_precision(request);
  train.activation_checkpointing = request.train.activation_checkpointing;
  return train;
}

std::vector<PlannedShard> possible_shards(const PlanRequest& request, const PlannedIsland& island,
                                          const PlannedMemory& kept) {
  std::vector<std::string> names = {"none"};
  if (island.devices > 1 && request.train.shard) {
    names = {*request.train.shard};
  } else if (island.devices > 1) {
    names.emplace_back("zero1");
    if (island.is_cpu) names.emplace_back("zero3");
  }
  method::TrainOptions train = planned_training(request, island.is_cpu);
  std::vector<PlannedShard> shards;
  for (const std::string& name : names) {
    train.shard = name;
    // Memory is linear in both.
    const auto device = [&](double gathered_params) {
      const ModelSize size{.params = 1, .gathered_params = gathered_params};
      return with_state(kept, size, train, island.devices).device;
    };
    shards.push_back({.shard = name,
                      .bytes_per_param = device(0),
                      .bytes_per_gathered_param = device(1) - device(0)});
  }
  return shards;
}

const PlannedShard& least_that_fits(const std::vector<PlannedShard>& shards, const ModelSize& size,
                                    double room_bytes) {
  const auto fits = std::ranges::find_if(
      shards, [&](const auto& each) { return each.bytes(size) <= room_bytes; });
  if (fits != shards.end()) return *fits;
  return *std::ranges::min_element(shards, {}, [&](const auto& each) { return each.bytes(size); });
}

}  // namespace atl::plan
