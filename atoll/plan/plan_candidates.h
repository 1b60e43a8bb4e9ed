#pragma once
// What a plan may choose: which islands, which method, which size; and what each choice comes to.
// Not thread-safe.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "atoll/method/sync_options.h"
#include "atoll/plan/plan_loss.h"
#include "atoll/plan/plan_memory.h"
#include "atoll/plan/plan_request.h"
#include "atoll/plan/plan_shape.h"
#include "atoll/plan/plan_sharding.h"
#include "atoll/plan/plan_traffic.h"

namespace atl::plan {

/// Who trains, and how they agree.
struct PlanSetup {
  std::vector<size_t> islands;  // Places in the request, rising.
  method::SyncOptions sync;     // Fragments follow from the model.

  /// As the laws count them: 0 is data-parallel, which one island without an outer step is too.
  double replicas() const;
};

/// How so many islands agree, whichever they are.
struct PlanWay {
  size_t num_islands = 0;
  method::SyncOptions sync;
  double replicas = 0;
  int64_t least_steps = 1;  // In fewer nobody trains so.
  std::vector<std::vector<PlannedShard>>
      shards;  // That an island may have, by place in the request.
};

/// A model, and what it is trained on.
struct PlannedSize {
  PlannedShape shape;
  double tokens = 0;  // At most: whole batches of them.
  ModelSize model;
  PassMemory gpu_pass;
  PassMemory cpu_pass;

  const PassMemory& pass(bool is_cpu) const { return is_cpu ? cpu_pass : gpu_pass; }
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
  std::vector<std::string> shards;    // By place in setup.islands: its train.shard.
  std::vector<PlannedMemory> memory;  // By place in setup.islands.
  std::vector<double> sent_bytes;     // By place in setup.islands; as many are received.
  double short_bytes = 0;             // Of a device's memory with one row at a time; 0: it fits.
  size_t short_island = 0;            // Where short_bytes lack; a place in setup.islands.
  double least_s = 0;                 // The training cannot take less: least_time().
  double computing_s = 0;
  // From time().
  double wall_clock_s = 0;
  double utilisation = 0;               // The share of the islands' time that computes.
  std::vector<laws::IslandTime> spent;  // By place.

  double tokens(const PlanGoal& goal) const;
  double total_bytes() const;
  bool fits() const { return short_bytes <= 0; }
};

/// The longest delay that is planned: up to it Streaming DiLoCo's loss hardly rises (section 4.3).
constexpr int64_t kLongestDelay = 5;

/// A batch is at most the tokens over this, whatever the law says.
constexpr double kFewestSteps = 300;

class Candidates {
 public:
  Candidates(const PlanRequest& request, const PlanLoss& loss);

  /// All that the laws say a loss of.
  const std::vector<PlanWay>& ways() const { return ways_; }
  /// Rising, with the fewest tokens a parameter; empty where the tokens are too few for the
  /// smallest.
  const std::vector<PlannedSize>& sizes() const { return sizes_; }
  /// The same, and where the next one computes much longer, the size before it with more tokens,
  /// as far as it computes less than the next: each computes longer and has less loss.
  const std::vector<PlannedSize>& ladder() const { return ladder_; }
  /// The same model on more and more tokens, for where no larger one fits. May be empty.
  const std::vector<PlannedSize>& longer(size_t size) const { return longer_[size]; }
  /// Of all tokens: choice() may leave out part of a batch.
  double loss(const PlannedSize& size, const PlanWay& way) const;
  /// Whether it has the memory, and there are enough tokens for a row on each device.
  bool is_able(size_t island, const PlannedSize& size, const PlanWay& way) const;
  size_t num_able(const PlannedSize& size, const PlanWay& way) const;
  /// How long they compute at least; infinite where too few are able.
  double least_computing_s(const PlannedSize& size, const PlanWay& way) const;
  /// The groups that are worth a try within that time (plan_groups.h).
  std::vector<std::vector<size_t>> groups(const PlannedSize& size, const PlanWay& way,
                                          double within_s) const;
  /// Those of whose devices' memory most is left, or least is missing.
  std::vector<size_t> largest_islands(const PlannedSize& size, const PlanWay& way) const;
  /// All but the time. Nothing where there are fewer tokens than a batch, or than two periods.
  std::optional<PlanChoice> choice(const PlannedSize& size, const PlanWay& way,
                                   std::vector<size_t> islands);
  /// Simulates it, with the delay it has; with lines of at least `floor_bits_per_s`.
  void time(PlanChoice& choice, double floor_bits_per_s = 0) const;
  /// The shortest delay that costs no more than a hundredth of the time, and none of the limit.
  void shorten_delay(PlanChoice& choice) const;
  const Shapes& shapes() const { return shapes_; }
  /// That a size is trained on at least and at most, where tokens are not fixed.
  double fewest_tokens_per_param() const;
  double most_tokens_per_param() const;

 private:
  const std::vector<double>& values_of(const PlannedShape& shape, const method::SyncOptions& sync);
  void add_ways(size_t num_islands);
  void add_sizes();
  void add_longer();
  void add_ladder();
  std::string params_refusal(double params) const;
  PlannedSize sized(const PlannedShape& shape, double tokens) const;
  double missing_bytes(size_t island, const PlannedSize& size, const PlanWay& way) const;
  const PlannedSettings& settings_of(const PlannedShape& shape, double replicas);
  void place_rows(PlanChoice& choice, double tokens) const;
  int64_t rows_together(const std::vector<size_t>& islands) const;
  void measure_memory(PlanChoice& choice, const PlannedSize& size, const PlanWay& way) const;
  void measure_traffic(PlanChoice& choice) const;

  const PlanRequest& request_;
  const PlanLoss& loss_;
  Shapes shapes_;
  std::vector<PlanWay> ways_;
  std::vector<PlannedSize> sizes_;
  std::vector<PlannedSize> ladder_;
  std::vector<std::vector<PlannedSize>> longer_;  // By size.
  std::vector<size_t> fastest_first_;             // Islands.
  std::map<std::pair<double, double>, PlannedSettings> settings_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<double>> values_;
};

}  // namespace atl::plan
