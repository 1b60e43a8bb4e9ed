#pragma once
// What `atoll plan` is asked: PLAN.toml as plain values, and its reader. Pure; no thread rule.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/laws/table.h"

namespace atl::plan {

/// An island as it stands: its devices, a process for each, share each of its batches.
struct PlannedIsland {
  std::string name;
  int64_t devices = 1;
  double flops_per_s = 0;          // Of one device, as it trains.
  std::string precision = "fp32";  // In which it has that speed.
  bool is_cpu = false;             // Parameters, outer copies and buffers lie in one memory.
  double memory_bytes = 0;         // Of one device.
  // Of its line, headers included. Infinite and 0 for an island that is alone and names no link.
  double up_bits_per_s = 0;
  double down_bits_per_s = 0;
  double latency_s = 0;  // Round trip to the coordinator.

  double total_flops_per_s() const { return static_cast<double>(devices) * flops_per_s; }
  double bits_per_s() const {
    return up_bits_per_s < down_bits_per_s ? up_bits_per_s : down_bits_per_s;
  }
};

/// Limits, and what is fixed. At least one of the first four is given.
struct PlanGoal {
  std::optional<double> time_s;            // At most.
  std::optional<double> tokens;            // To train on: at most, or with `params` exactly.
  std::optional<double> loss;              // At most, nats per token.
  std::optional<double> params;            // About so many, as the laws count.
  std::optional<double> tokens_per_param;  // Empty: as the laws' runs had.
  int64_t sequence_length = 2048;
  int64_t vocab_size = 32'000;
};

/// What of train.* is fixed.
struct PlanTraining {
  std::optional<std::string> precision;  // Empty: that of the islands' speed.
  std::optional<std::string> shard;  // Of islands of several devices; empty: the least that fits.
  bool activation_checkpointing = false;
};

/// Whose laws: the published ones where `fit` is empty.
struct PlanLaws {
  std::string fit;  // A file as read_table() takes it.
  laws::ReadOptions read;
};

struct PlanRequest {
  std::vector<PlannedIsland> islands;
  PlanGoal goal;
  PlanTraining train;
  PlanLaws laws;
};

/// "'zurich', 'oslo'": those at the places.
std::string quoted_names(const PlanRequest& request, const std::vector<size_t>& places);

constexpr size_t kMaxPlanBytes = size_t{1} << 20;
constexpr size_t kMaxPlannedIslands = 64;

/// Reads PLAN.toml. Throws UsageError with all that is wrong, a line for each: unknown sections and
/// keys with the nearest known one, types, ranges, units, what is missing or contradicts.
PlanRequest parse_plan(std::string_view text, const std::string& where);

}  // namespace atl::plan
