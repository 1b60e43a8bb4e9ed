#pragma once
// DiLoCo (arXiv 2311.08105, algorithm 1). Each replica trains sync_every inner steps alone; then
// the weighted mean of the outer gradients, old global minus local, is a step of the outer
// optimiser on the global copy, from which all replicas go on. Inner moments are never exchanged.
//
// Before they are sent, outer gradients may be pruned; their mean may be the radial-directional
// one; and replicas may be left out of a round, to see what that costs: such a replica takes part
// with weight 0 and goes on from its own parameters (outer_gradient.h).
//
// Where training goes on while a round travels (Fate::kOvertaken), the live parameters become the
// new global ones plus what this replica has learned since its snapshot.
//
// Deviation: a run whose last step is not a multiple of sync_every ends with one shorter period, so
// that no replica's work is lost.
#include <memory>
#include <optional>

#include "atoll/method/outer_gradient.h"
#include "atoll/method/outer_optimizer.h"
#include "atoll/sync/outer_state.h"
#include "atoll/sync/strategy.h"

namespace atl::sync {

class DiLoCo final : public Strategy {
 public:
  DiLoCo(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
         const Clock& clock);
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  bool lands(int64_t /*step*/) const override { return dropout_ == 0; }
  std::vector<std::vector<at::Tensor>> state_of(int64_t fragment) const override;
  Digest absorb(const collective::Commit& commit, int64_t number,
                std::span<const float> mean_PG) override;
  void do_join() override;
  void launch(const OwnRound& own) override;
  void take(const OwnRound& own, Fate fate) override;
  /// This replica, of that round.
  bool is_dropped(int64_t round) const;
  /// The round's result is the state from here on.
  void adopt(int64_t round);
  /// To be called whenever now_ changes.
  void place_origin();
  /// Fills values_PG_ with what this replica sends.
  void write_outer_gradient();
  Digest prepare(int64_t number, std::span<const float> mean_PG);

  double sign_pruning_;
  double dropout_;
  method::OuterOptimizer outer_;
  std::optional<method::RadialMean> radial_;
  OuterState now_;   // What the last committed round left.
  OuterState next_;  // The round's result before its commit.
  /// Pruning and the radial mean work on the host; all else where the parameters are.
  bool sends_from_host_;
  at::Tensor origin_P_;      // now_.theta_P, where outer gradients are made.
  at::Tensor values_PG_;     // There too. What this replica sends; G = 0 without radial_.
  at::Tensor mean_delta_P_;  // Host. With radial_ only.
};

}  // namespace atl::sync
