#pragma once
// DiLoCo whose exchange overlaps a whole period (Eager updates, arXiv 2502.12996): at the end of
// period k the mean of the period before has arrived, and this replica's own outer gradient D_m^k
// has just begun to travel. With M replicas:
//   delayed   D~_m = mean D^(k-1)
//   eager     D~_m = mean D^(k-1) + (D_m^k - D_m^(k-1)) / M      its own part fresh, the others'
//   old theta_m = OuterOpt(theta_m, D~_m)                            so replicas differ
// What the run publishes is the mean of all theta_m. OuterOpt is linear in theta, momentum and
// gradient, so that mean follows from the mean outer gradients alone: every replica computes the
// same bits, one period late. After the last step the last means are waited for and all replicas
// take the published model.
#include <memory>
#include <span>

#include "atoll/method/outer_optimizer.h"
#include "atoll/sync/outer_state.h"
#include "atoll/sync/strategy.h"

namespace atl::sync {

class EagerDiLoCo final : public Strategy {
 public:
  EagerDiLoCo(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
              const Clock& clock);
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  void launch(const OwnRound& own) override;
  void take(const OwnRound& own, Fate fate) override;
  void do_resume(const std::vector<OwnRound>& on_their_way) override;
  bool uses_fresh() const { return fresh_share_ > 0; }
  /// To be called whenever own_ changes.
  void place_origin();
  void send(const OwnRound& own);
  Digest prepare(int64_t round, std::span<const float> mean_P);
  void step_own(int64_t round);
  void finish(int64_t round);
  /// direction = old mean + fresh_share * (fresh - old), one element after the other.
  void blend(const at::Tensor& fresh_P, const at::Tensor& old_P,
             const at::Tensor& direction_P) const;

  float fresh_share_;  // 1 / M, delayed: 0.
  method::OuterOptimizer outer_;
  // Of this replica. Outer gradients are made and kept where its parameters are, or on the host if
  // its own outer step, which is taken there, uses the fresh one. All else is on the host.
  OuterState own_;          // theta_m
  at::Tensor origin_P_;     // The same, where outer gradients are made.
  at::Tensor delta_P_;      // D_m^k: in flight.
  at::Tensor old_delta_P_;  // D_m^(k-1), if the fresh one is used.
  at::Tensor direction_P_;  // D~_m
  // Of all:
  OuterState now_;  // The mean of all theta_m, one period late.
  OuterState next_;
  at::Tensor mean_P_;  // Mean D^(k-1), the newest that has come.
  at::Tensor new_mean_P_;
  at::Tensor mean_direction_P_;
};

}  // namespace atl::sync
