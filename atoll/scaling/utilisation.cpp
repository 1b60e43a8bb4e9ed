#include "atoll/scaling/utilisation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/sim/line.h"

namespace atl::scaling {
namespace {

constexpr int kDataParallelSteps = 40;
constexpr int kPeriods = 10;
constexpr int64_t kMaxWork = int64_t{1} << 26;  // Islands x layers x steps: about half a second.

/// Which layers are reduced after the backward pass of a step.
class Schedule {
 public:
  explicit Schedule(const Workload& work) : work_(work) {}

  bool syncs(int step, int layer) const {
    if (work_.method == Method::kDataParallel) return true;
    const int place = step % work_.sync_every;
    if (work_.method == Method::kDiloco) return place == 0;
    // The first of the slots is the embeddings', which the model leaves out.
    const int spacing = work_.sync_every / (work_.fragments + 1);
    const int slot = place / spacing;
    return place % spacing == 0 && slot >= 1 && slot <= work_.fragments &&
           layer % work_.fragments == slot - 1;
  }

 private:
  const Workload& work_;
};

/// A reduction on its way.
struct Pending {
  double done_s = 0;
  int needed_at = 0;  // The step that must have it.
};

class Simulation {
 public:
  Simulation(const Workload& work, double gbps)
      : work_(work),
        schedule_(work),
        part_bits_(work.bits * work.params / work.layers),
        bits_per_s_(gbps * 1e9),
        clock_s_(work.islands.size()),
        lines_(work.islands.size()),
        next_failure_s_(work.islands.size()),
        back_s_(work.islands.size()),
        num_failures_(work.islands.size()),
        pending_(static_cast<size_t>(work.layers)),
        ready_s_(static_cast<size_t>(work.layers)) {
    for (size_t i = 0; i < work.islands.size(); ++i) next_failure_s_[i] = draw_failure(i, 0);
  }

  double run() {
    const int steps = work_.num_steps();
    double computed_s = 0;  // Of an island of speed 1.
    for (int step = 1; step <= steps; ++step) {
      computed_s += run_step(step) * (3 * work_.layers - 1) * unit_s();
    }
    double capacity = 0;
    for (const SimulatedIsland& island : work_.islands) capacity += island.speed;
    return computed_s / (capacity * latest());
  }

 private:
  double latest() const { return *std::max_element(clock_s_.begin(), clock_s_.end()); }

  double draw_failure(size_t island, double after_s) {
    if (work_.failures.mean_hours == 0) return std::numeric_limits<double>::infinity();
    const double uniform = random_uniform(work_.failures.seed, island, num_failures_[island]++);
    return after_s - std::log1p(-uniform) * work_.failures.mean_hours * 3600;
  }

  /// Takes part in the step? One that was away comes in at the time of the others.
  bool is_here(size_t island, double start_s) {
    if (back_s_[island] == 0) return true;
    if (back_s_[island] > start_s) return false;
    back_s_[island] = 0;
    clock_s_[island] = start_s;
    lines_[island] = {.bulk_free = start_s};
    next_failure_s_[island] = draw_failure(island, start_s);
    return true;
  }

  /// The time at which the step begins; waits for somebody where nobody is there.
  double begin_step() {
    double start_s = 0;
    double first_back_s = std::numeric_limits<double>::infinity();
    bool anybody = false;
    for (size_t i = 0; i < work_.islands.size(); ++i) {
      start_s = std::max(start_s, clock_s_[i]);
      anybody |= back_s_[i] == 0;
      if (back_s_[i] != 0) first_back_s = std::min(first_back_s, back_s_[i]);
    }
    return anybody ? start_s : std::max(start_s, first_back_s);
  }

  /// How many islands computed it.
  double run_step(int step) {
    const double start_s = begin_step();
    std::fill(ready_s_.begin(), ready_s_.end(), 0.0);
    members_.clear();
    for (size_t i = 0; i < work_.islands.size(); ++i) {
      if (!is_here(i, start_s)) continue;
      const double forward_end_s = forward(i, step);
      clock_s_[i] = forward_end_s + backward_s(i, 0);
      if (clock_s_[i] < next_failure_s_[i]) {
        members_.push_back(i);
        for (int layer = 0; layer < work_.layers; ++layer) {
          double& ready_s = ready_s_[static_cast<size_t>(layer)];
          ready_s = std::max(ready_s, forward_end_s + backward_s(i, layer));
        }
        continue;
      }
      // Gone, its step with it; the others notice after a while.
      back_s_[i] = next_failure_s_[i] + work_.failures.recovery_s;
      clock_s_[i] = next_failure_s_[i];
      lost_until_s_ = next_failure_s_[i] + work_.failures.detection_s;
    }
    for (auto& reductions : pending_) {
      std::erase_if(reductions, [step](const Pending& p) { return p.needed_at <= step; });
    }
    reduce(step);
    return static_cast<double>(members_.size());
  }

  /// A third of a layer's share of the step. A step has one less than three for each layer: the
  /// first has no backward pass for its activations.
  double unit_s() const { return work_.step_s / (3.0 * work_.layers); }
  double unit_s(size_t island) const { return unit_s() / work_.islands[island].speed; }

  /// The time at which the island's forward pass of the step ends.
  double forward(size_t island, int step) const {
    double now_s = clock_s_[island];
    for (const std::vector<Pending>& reductions : pending_) {
      for (const Pending& reduction : reductions) {
        if (reduction.needed_at <= step) now_s = std::max(now_s, reduction.done_s);
      }
      now_s += unit_s(island);
    }
    return now_s;
  }

  /// From the end of the forward pass until that layer's parameters have their gradients.
  double backward_s(size_t island, int layer) const {
    const int num_units = 2 * (work_.layers - layer) - (layer == 0 ? 1 : 0);
    return num_units * unit_s(island);
  }

  void reduce(int step) {
    if (members_.empty()) return;
    for (int layer = work_.layers - 1; layer >= 0; --layer) {
      if (!schedule_.syncs(step, layer)) continue;
      const double ready_s = std::max(ready_s_[static_cast<size_t>(layer)], lost_until_s_);
      double done_s = 0;
      double latency_s = 0;
      for (const size_t i : members_) {
        const SimulatedIsland& island = work_.islands[i];
        const double rate = bits_per_s_ * std::min(island.up, island.down);
        done_s = std::max(done_s, lines_[i].send_bulk(ready_s, part_bits_ / rate));
        latency_s = std::max(latency_s, island.latency_s);
      }
      pending_[static_cast<size_t>(layer)].push_back({done_s + latency_s, step + 1 + work_.delay});
    }
  }

  const Workload& work_;
  Schedule schedule_;
  double part_bits_;  // Of one layer.
  double bits_per_s_;
  double lost_until_s_ = 0;
  std::vector<double> clock_s_;  // By island.
  std::vector<sim::Line<double, double>> lines_;
  std::vector<double> next_failure_s_;
  std::vector<double> back_s_;  // 0: it is here.
  std::vector<uint64_t> num_failures_;
  std::vector<std::vector<Pending>> pending_;  // By layer.
  std::vector<double> ready_s_;                // By layer, of this step.
  std::vector<size_t> members_;                // Islands that finished this step.
};

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
  const bool streaming = work.method == Method::kStreamingDiloco;
  if (work.method == Method::kDataParallel) {
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

}  // namespace

int Workload::num_steps() const {
  if (steps > 0) return steps;
  return method == Method::kDataParallel ? kDataParallelSteps : kPeriods * sync_every + 1;
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
  const auto islands = static_cast<int64_t>(work.islands.size());
  require(work.num_steps() <= kMaxWork / work.layers / islands,
          fmt::format("{} islands with {} layers for {} steps are too many to simulate; give "
                      "fewer --steps",
                      islands, work.layers, work.num_steps()));
}

double utilisation(const Workload& workload, double gbps) {
  return Simulation(workload, gbps).run();
}

double grid_gbps(int index) { return std::pow(10, -1 + 4.0 * index / 49); }

std::array<double, kGridSize> utilisation_on_grid(const Workload& workload) {
  std::array<double, kGridSize> grid;
  for (int k = 0; k < kGridSize; ++k) grid[k] = utilisation(workload, grid_gbps(k));
  return grid;
}

std::optional<int> grid_index(const std::array<double, kGridSize>& grid, double target) {
  constexpr double kRounding = 1e-9;  // A share of 1 may come out below it.
  const auto found = std::find_if(grid.begin(), grid.end(),
                                  [target](double share) { return share >= target - kRounding; });
  if (found == grid.end()) return std::nullopt;
  return static_cast<int>(found - grid.begin());
}

std::string method_name(Method method) {
  switch (method) {
    case Method::kDataParallel:
      return "data_parallel";
    case Method::kDiloco:
      return "diloco";
    case Method::kStreamingDiloco:
      return "streaming_diloco";
  }
  return {};
}

std::optional<Method> method_of(const std::string& name) {
  for (const Method method : {Method::kDataParallel, Method::kDiloco, Method::kStreamingDiloco}) {
    if (method_name(method) == name) return method;
  }
  return std::nullopt;
}

}  // namespace atl::scaling
