#pragma once
// SparseLoCo (arXiv 2508.15706): DiLoCo whose outer gradients are sparse and of few bits. Error
// feedback takes the place of outer momentum:
//   D   = theta - theta_m                  this replica's outer gradient
//   D^  = C(beta * e + D)                  C: the largest of each chunk, 2 bits each
//   e   = beta * e + D - D^
//   theta = theta - outer_lr * mean_m(D^)
// In elastic pace (Replica::is_elastic) rounds are begun and taken as in diloco.h.
// Every member sums the encodings of all (collective::Topology::kGather).
#include <memory>

#include "atoll/sync/strategy.h"

namespace atl::sync {

class SparseLoCo final : public Strategy {
 public:
  SparseLoCo(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
             const Clock& clock);
  bool syncs_after(int64_t step) const override;
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Result<void> do_after_step(int64_t step) override;
  void do_resume(int64_t step) override;
  int64_t next_due(int64_t step) const override;
  std::vector<std::vector<at::Tensor>> state_of(int64_t fragment) const override;
  Digest absorb(const collective::Commit& commit, std::span<const float> mean_P) override;
  void do_join(int64_t step) override;
  void launch_due(const collective::DueRound& due) override;
  void take(int64_t round, Fate fate) override;
  bool is_due(int64_t step) const;
  void launch(int64_t round, int64_t step);
  Digest step_global(std::span<const float> mean_P);
  void adopt(int64_t round);
  Digest prepare(std::span<const float> mean_P, std::span<const float> own_P);

  int64_t sync_every_;
  float lr_;
  float decay_;
  at::Tensor global_P_;     // Host. theta
  at::Tensor residual_P_;   // Host. e
  at::Tensor corrected_P_;  // Host. beta * e + D while a round is in flight; e if it has no D.
  bool has_delta_ = false;
  at::Tensor new_global_P_;  // Host. The round's results before its commit.
  at::Tensor new_residual_P_;
};

}  // namespace atl::sync
