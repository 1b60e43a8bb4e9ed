#pragma once
// For tests of plans: islands, and what is planned for them.
#include <string>
#include <utility>
#include <vector>

#include "atoll/plan/plan.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::plan {

inline constexpr double kDay = 86400;

/// Four GPUs of 40 teraflop/s, plenty of memory, a home line.
inline PlannedIsland island(const std::string& name, double mbit = 200) {
  return {.name = name,
          .devices = 4,
          .flops_per_s = 40e12,
          .memory_bytes = 640e9,
          .up_bits_per_s = mbit * 1e6,
          .down_bits_per_s = mbit * 1e6,
          .latency_s = 0.03};
}

inline PlanRequest request(std::vector<PlannedIsland> islands, const PlanGoal& goal) {
  return {.islands = std::move(islands), .goal = goal, .train = {}, .laws = {}};
}

inline Plan plan_of(std::vector<PlannedIsland> islands, const PlanGoal& goal) {
  return make_plan(request(std::move(islands), goal), std::nullopt);
}

inline std::string refusal(std::vector<PlannedIsland> islands, const PlanGoal& goal) {
  return message_of([&] { plan_of(std::move(islands), goal); });
}

/// One GPU of 40 teraflop/s.
inline PlannedIsland single_gpu(const std::string& name, double mbit) {
  PlannedIsland out = island(name, mbit);
  out.devices = 1;
  out.memory_bytes = 80e9;
  return out;
}

}  // namespace atl::plan
