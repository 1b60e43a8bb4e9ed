#pragma once
// What a plan may choose: which islands, which method, which size; and what each choice comes to.
// Not thread-safe.
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "atoll/scaling/plan_loss.h"
#include "atoll/scaling/plan_memory.h"
#include "atoll/scaling/plan_request.h"
#include "atoll/scaling/plan_shape.h"
#include "atoll/scaling/plan_traffic.h"
#include "atoll/sync/options.h"

namespace atl::scaling {

/// Who trains, and how they agree.
struct PlanSetup {
  std::vector<size_t> islands;  // Places in the request, rising.
  sync::SyncOptions sync;       // Fragments follow from the model.

  /// As the laws count them: 0 is data-parallel, which one island without an outer step is too.
  double replicas() const;
};

struct PlanChoice {
  PlannedShape shape;
  PlanSetup setup;
  double loss = 0;  // Nats per token, predicted.
  int64_t steps = 0;
  int64_t batch_rows = 0;        // Of all islands.
  int64_t micro_batch_rows = 0;  // On one device.
  PlannedSettings settings;
  std::vector<LoadedIsland> loads;    // By place in setup.islands.
  std::vector<double> values;         // Sent on their own: values_sent().
  std::vector<PlannedMemory> memory;  // The same.
  std::vector<double> sent_bytes;     // The same; as many are received.
  double short_bytes = 0;             // Of a device's memory with one row at a time; 0: it fits.
  size_t short_island = 0;            // Whose device; a place in setup.islands.
  double least_s = 0;                 // It cannot take less: least_time().
  double computing_s = 0;
  // From time().
  double wall_clock_s = 0;
  double utilisation = 0;         // The share of the islands' time that computes.
  std::vector<IslandTime> spent;  // By place.

  double tokens(const PlanGoal& goal) const;
  double total_bytes() const;
  bool fits() const { return short_bytes <= 0; }
};

/// The longest delay that is planned: up to it Streaming DiLoCo's loss hardly rises (section 4.3).
constexpr int64_t kLongestDelay = 5;

class Candidates {
 public:
  Candidates(const PlanRequest& request, const PlanLoss& loss);

  const std::vector<PlanSetup>& setups() const { return setups_; }
  /// Rising; empty where the tokens are too few for the smallest.
  const std::vector<PlannedShape>& sizes() const { return sizes_; }
  /// All but the time. Nothing where there are fewer tokens than a batch, or than two periods.
  std::optional<PlanChoice> choice(const PlannedShape& shape, const PlanSetup& setup);
  /// Simulates it, with the delay it has; with lines of at least `floor_bits_per_s`.
  void time(PlanChoice& choice, double floor_bits_per_s = 0) const;
  /// The shortest delay that costs no more than a hundredth of the time, and none of the limit.
  void shorten_delay(PlanChoice& choice) const;
  const Shapes& shapes() const { return shapes_; }
  /// That a size is trained on, where tokens are not fixed.
  double tokens_per_param() const;

 private:
  const std::vector<double>& values_of(const PlannedShape& shape, const sync::SyncOptions& sync);
  std::vector<std::vector<size_t>> island_groups() const;
  void add_setups(const std::vector<size_t>& islands);
  double tokens_for(const PlannedShape& shape) const;
  void place_rows(PlanChoice& choice) const;
  void measure_memory(PlanChoice& choice) const;
  void measure_traffic(PlanChoice& choice) const;

  const PlanRequest& request_;
  const PlanLoss& loss_;
  Shapes shapes_;
  std::vector<PlanSetup> setups_;
  std::vector<PlannedShape> sizes_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<double>> values_;
};

}  // namespace atl::scaling
