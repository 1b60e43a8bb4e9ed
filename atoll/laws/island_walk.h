#pragma once
// The walk behind utilisation.h: all islands, step by step, over lines of one bandwidth, with the
// failures that a seed draws. Between two of them periods come to repeat; then only what has a
// fixed time, failures and returns, has to be moved nearer. Pure; the workload outlives the walk.
#include <cstdint>
#include <vector>

#include "atoll/laws/utilisation.h"
#include "atoll/sim/line.h"

namespace atl::laws {

/// What the next steps depend on, failures and returns aside, seen from the earliest clock.
struct WalkState {
  double clock_s = 0;           // The earliest; since the walk's last skip.
  int64_t num_changes = 0;      // Failures and returns.
  std::vector<double> ahead_s;  // Clocks, lines and reductions that are not behind it.
  std::vector<int> needed_in;   // Steps until each reduction is needed.
};

/// The same but for rounding, `span_s` later.
bool repeats(const WalkState& before, const WalkState& now, double span_s);

class IslandWalk {
 public:
  IslandWalk(const Workload& work, double gbps);

  /// How many islands computed it.
  int run_step();
  /// Of the island that is furthest.
  double now_s() const;
  int64_t num_failures() const { return num_failed_; }

  WalkState state() const;
  /// How many spans of so many seconds go by before an island fails or returns.
  double spans_until_change(double span_s) const;
  /// Whole periods that end as they began: so many seconds pass, and nothing else changes.
  void skip(double seconds);

 private:
  struct Pending {  // A reduction on its way.
    double done_s = 0;
    int needed_at = 0;  // The step that must have it.
  };

  bool is_present(size_t island) const { return back_s_[island] == 0; }
  double latest() const;
  double earliest_present() const;
  double draw_failure(size_t island, double after_s);
  bool take_in(size_t island, double start_s);
  double begin_step() const;
  bool syncs() const;
  bool syncs(int layer) const;
  double forward(size_t island) const;
  double backward_s(size_t island, int layer) const;
  void finish_or_fail(size_t island, bool reduces);
  void reduce();

  const Workload& work_;
  double part_bits_;  // Of one layer.
  double bits_per_s_;
  int step_ = 0;          // Those that were skipped do not count: they are whole periods.
  double skipped_s_ = 0;  // All times below are since then.
  int64_t num_failed_ = 0;
  int64_t num_returned_ = 0;
  double lost_until_s_ = 0;
  std::vector<double> unit_s_;   // By island: a third of a layer's share of the step.
  std::vector<double> clock_s_;  // By island.
  std::vector<sim::Line<double, double>> lines_;
  std::vector<double> next_failure_s_;
  std::vector<double> back_s_;  // 0: it is here.
  std::vector<uint64_t> num_drawn_;
  size_t num_pending_ = 0;
  std::vector<std::vector<Pending>> pending_;  // By layer.
  std::vector<double> ready_s_;                // By layer, of this step.
  std::vector<size_t> members_;                // Islands that finished this step.
};

}  // namespace atl::laws
