#include "atoll/cli/scaling_wall_clock.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "atoll/base/progress.h"

namespace atl::cli {

using Json = nlohmann::ordered_json;

Json wall_clock_json(const std::vector<laws::TrainingPlan>& plans) {
  Json out = Json::array();
  for (const laws::TrainingPlan& plan : plans) {
    Json json = {{"replicas", static_cast<int64_t>(plan.replicas)},
                 {"steps", plan.steps()},
                 {"compute_s", plan.compute_s()},
                 {"bits", plan.bits},
                 {"outer_bits", plan.outer_bits},
                 {"networks", Json::array()}};
    for (const laws::Network& network : laws::kNetworks) {
      const double communication = laws::communication_s(plan, network);
      json["networks"].push_back({{"name", network.name},
                                  {"gbps", network.gbps},
                                  {"latency_s", network.latency_s},
                                  {"communication_s", communication},
                                  {"total_s", plan.compute_s() + communication}});
    }
    out.push_back(std::move(json));
  }
  return out;
}

void print_wall_clock(const std::vector<laws::TrainingPlan>& plans) {
  if (plans.empty()) return;
  fmt::print("\nidealised wall-clock, {:.0f} steps: {} of computing, and of communication\n",
             plans[0].steps(), format_duration(plans[0].compute_s()));
  for (const laws::TrainingPlan& plan : plans) {
    const auto replicas = static_cast<int64_t>(plan.replicas);
    const std::string name = replicas == 0
                                 ? "data-parallel"
                                 : fmt::format("{} replica{}", replicas, replicas == 1 ? "" : "s");
    fmt::print("  {:<14}", name);
    for (const laws::Network& network : laws::kNetworks) {
      fmt::print("  {:g} Gbit/s {}", network.gbps,
                 format_duration(laws::communication_s(plan, network)));
    }
    fmt::print("\n");
  }
}

}  // namespace atl::cli
