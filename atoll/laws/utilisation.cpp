#include "atoll/laws/utilisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/laws/island_walk.h"

namespace atl::laws {
namespace {

constexpr int kDataParallelSteps = 40;
constexpr int kPeriods = 10;
constexpr int64_t kMaxWork = int64_t{1} << 26;  // Islands x layers x steps: half a second at most.
constexpr double kMaxSteps = 1e15;              // With those that are skipped.

/// Skips the periods of a walk that repeat.
class Skipper {
 public:
  explicit Skipper(const Workload& work) : work_(work) {}

  struct Skipped {
    int64_t steps = 0;
    int64_t computed = 0;
  };

  /// After a whole period, when islands have computed so many walked steps; at most so many steps
  /// or seconds, whichever is more.
  Skipped skip(IslandWalk& walk, int64_t computed, int64_t most_steps, double most_s) {
    ++num_periods_;
    WalkState state = walk.state();
    const int64_t span_steps = num_periods_ * work_.sync_every;
    const double span_s = state.clock_s - kept_.clock_s;
    if (is_kept_ && repeats(kept_, state, span_s)) {
      const int64_t fitting = most_steps / span_steps;
      const double most = std::max(static_cast<double>(fitting), most_s / span_s);
      const double spans = std::floor(std::min(most, walk.spans_until_change(span_s)));
      is_kept_ = false;
      keep_for_ = 1;
      if (spans < 1) return {};
      walk.skip(spans * span_s);
      const auto times = static_cast<int64_t>(spans);
      return {times * span_steps, times * (computed - kept_computed_)};
    }
    // Brent's search: what is kept grows older each time, so that any cycle fits.
    const bool has_changed = kept_.num_changes != state.num_changes;
    if (is_kept_ && !has_changed && num_periods_ < keep_for_) return {};
    keep_for_ = is_kept_ && !has_changed ? 2 * keep_for_ : 1;
    is_kept_ = true;
    kept_ = std::move(state);
    kept_computed_ = computed;
    num_periods_ = 0;
    return {};
  }

 private:
  const Workload& work_;
  bool is_kept_ = false;
  WalkState kept_;
  int64_t kept_computed_ = 0;
  int64_t num_periods_ = 0;  // Since then.
  int64_t keep_for_ = 1;
};

/// Of all islands, in one second.
double failure_rate(const Workload& work) {
  const Failures& failures = work.failures;
  if (failures.mean_hours == 0) return 0;
  return static_cast<double>(work.islands.size()) /
         (failures.mean_hours * 3600 + failures.recovery_s);
}

/// The time that is simulated at least.
double least_s(const Workload& work) {
  if (work.failures.mean_hours == 0 || work.steps > 0) return 0;
  double speed = 0;
  for (const SimulatedIsland& island : work.islands) speed = std::max(speed, island.speed);
  return std::min(kFailures / failure_rate(work), kMaxSteps * work.step_s / speed);
}

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError(message);
}

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

void check_island(const SimulatedIsland& island) {
  require(is_positive(island.speed) && is_positive(island.up) && is_positive(island.down),
          "an island's speed, up and down must be more than 0");
  require(std::isfinite(island.latency_s) && island.latency_s >= 0,
          "an island's latency must be 0 or more");
}

void check_method(const Workload& work) {
  const bool streaming = work.method == SimulatedMethod::kStreamingDiloco;
  if (work.method == SimulatedMethod::kDataParallel) {
    require(work.sync_every == 1,
            "data_parallel syncs every step: --sync-every does not go with it");
  }
  require(streaming || work.fragments <= 1,
          fmt::format("{} has no fragments: --fragments does not go with it",
                      method_name(work.method)));
  require(streaming || work.delay == 0,
          fmt::format("{} waits for its reductions: --delay does not go with it",
                      method_name(work.method)));
  if (!streaming) return;
  require(work.fragments >= 1 && work.fragments <= work.layers,
          fmt::format("--fragments must be from 1 to the number of layers, {}", work.layers));
  require(work.fragments < work.sync_every,
          fmt::format("{} fragments and the embeddings need --sync-every {} or more",
                      work.fragments, work.fragments + 1));
  require(work.delay >= 0 && work.delay < work.sync_every,
          "--delay must be 0 or more and less than --sync-every");
}

/// Steps that are walked at most, skipped ones left out.
int64_t max_walked(const Workload& work) {
  return kMaxWork / work.layers / static_cast<int64_t>(work.islands.size());
}

[[noreturn]] void refuse_steps(const Workload& work, int64_t steps, const char* why = "") {
  throw UsageError(
      fmt::format("{} islands with {} layers for {} steps are too many to simulate{}; give {}",
                  work.islands.size(), work.layers, steps, why,
                  work.steps > 0 ? "fewer --steps" : "a shorter --sync-every, or fewer islands"));
}

void check_steps(const Workload& work) {
  const int64_t least = int64_t{work.sync_every} + work.delay + 1;
  require(work.steps == 0 || work.steps >= least,
          fmt::format("{} --steps are too few to wait for a reduction of {}: give {} or more, a "
                      "whole period, the delay and the step that waits",
                      work.steps, method_name(work.method), least));
  // With failures it depends on how often they are.
  const int64_t walked = work.failures.mean_hours > 0 ? 2 * least : work.num_steps();
  if (walked > max_walked(work)) refuse_steps(work, walked);
}

}  // namespace

int64_t Workload::num_steps() const {
  if (steps > 0) return steps;
  return method == SimulatedMethod::kDataParallel ? kDataParallelSteps
                                                  : kPeriods * int64_t{sync_every} + 1;
}

void check(const Workload& work) {
  require(is_positive(work.params), "--params must be more than 0");
  require(work.layers >= 1, "--layers must be 1 or more");
  require(is_positive(work.step_s), "--step-time must be more than 0 seconds");
  require(is_positive(work.bits), "--bits must be more than 0");
  require(work.sync_every >= 1, "--sync-every must be 1 or more");
  check_method(work);
  require(!work.islands.empty(), "there must be an island");
  for (const SimulatedIsland& island : work.islands) check_island(island);
  const Failures& failures = work.failures;
  require(std::isfinite(failures.mean_hours) && failures.mean_hours >= 0 &&
              std::isfinite(failures.recovery_s) && failures.recovery_s > 0 &&
              std::isfinite(failures.detection_s) && failures.detection_s >= 0,
          "failures need a mean of 0 hours or more, a recovery of more than 0 seconds and a "
          "detection of 0 or more");
  check_steps(work);
}

Simulated simulate(const Workload& work, double gbps) {
  IslandWalk walk(work, gbps);
  Skipper skipper(work);
  const bool has_failures = work.failures.mean_hours > 0;
  const int64_t least_steps = work.num_steps();
  const double until_s = least_s(work);
  const int num_units = 3 * work.layers - 1;
  double computed_s = 0;  // Of an island of speed 1; skipped steps are counted, and come last.
  int64_t num_walked = 0;
  int64_t num_skipped = 0;
  Simulated out;
  int64_t left = max_walked(work);
  while (true) {
    const int num_members = walk.run_step();
    computed_s += num_members * num_units * work.unit_s();
    num_walked += num_members;
    ++out.steps;
    --left;
    // Where a time is to pass, a step more than whole periods: it waits for their reductions.
    const bool may_end = until_s == 0 || (out.steps - 1) % work.sync_every == 0;
    const bool is_over = left <= 0 || (out.steps >= least_steps && walk.now_s() >= until_s);
    if (left <= 0 && out.steps < least_steps && work.steps > 0) {
      refuse_steps(work, work.steps, " with failures as often as these");
    }
    if (may_end && is_over) break;
    if (!has_failures || out.steps % work.sync_every != 0) continue;
    const Skipper::Skipped skipped =
        skipper.skip(walk, num_walked, least_steps - out.steps - 1, until_s - walk.now_s());
    out.steps += skipped.steps;
    num_skipped += skipped.computed;
  }
  computed_s += static_cast<double>(num_skipped) * num_units * work.unit_s();
  double capacity = 0;
  for (const SimulatedIsland& island : work.islands) capacity += island.speed;
  out.seconds = walk.now_s();
  out.utilisation = computed_s / (capacity * out.seconds);
  out.expected_failures = out.seconds * failure_rate(work);
  return out;
}

double grid_gbps(int index) { return std::pow(10, -1 + 4.0 * index / 49); }

std::optional<int> grid_index(const std::array<double, kGridSize>& grid, double target) {
  constexpr double kRounding = 1e-9;  // A share of 1 may come out below it.
  const auto found = std::find_if(grid.begin(), grid.end(),
                                  [target](double share) { return share >= target - kRounding; });
  if (found == grid.end()) return std::nullopt;
  return static_cast<int>(found - grid.begin());
}

std::string method_name(SimulatedMethod method) {
  switch (method) {
    case SimulatedMethod::kDataParallel:
      return "data_parallel";
    case SimulatedMethod::kDiloco:
      return "diloco";
    case SimulatedMethod::kStreamingDiloco:
      return "streaming_diloco";
  }
  return {};
}

std::optional<SimulatedMethod> simulated_method(const std::string& name) {
  for (const SimulatedMethod method : {SimulatedMethod::kDataParallel, SimulatedMethod::kDiloco,
                                       SimulatedMethod::kStreamingDiloco}) {
    if (method_name(method) == name) return method;
  }
  return std::nullopt;
}

}  // namespace atl::laws
