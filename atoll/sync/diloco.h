#pragma once
// DiLoCo (arXiv 2311.08105, algorithm 1). Each replica trains sync_every inner steps alone; then
// the weighted mean of the outer gradients, old global minus local, is a step of the outer
// optimiser on the global copy, from which all replicas go on. Inner moments are never exchanged.
//
// Deviation: a run whose last step is not a multiple of sync_every ends with one shorter period, so
// that no replica's work is lost.
#include "atoll/sync/outer_optimizer.h"
#include "atoll/sync/strategy.h"

namespace atl::sync {

class DiLoCo final : public Strategy {
 public:
  DiLoCo(const SyncOptions& options, Replica replica, collective::Averager& averager,
         const Clock& clock);
  Result<void> reduce_gradients(int64_t step) override;
  Result<void> after_step(int64_t step) override;
  bool syncs_after(int64_t step) const override;
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Digest prepare(std::span<const float> mean_delta_P);

  Replica replica_;
  collective::Averager& averager_;
  const Clock& clock_;
  int64_t sync_every_;
  OuterOptimizer outer_;
  at::Tensor global_P_;      // Host. What the last committed round left.
  at::Tensor momentum_P_;    // Host.
  at::Tensor delta_P_;       // Host. This replica's outer gradient while a round is in flight.
  at::Tensor new_global_P_;  // Host. The round's result before its commit.
  at::Tensor new_momentum_P_;
};

}  // namespace atl::sync
