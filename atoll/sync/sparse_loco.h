#pragma once
// SparseLoCo (arXiv 2508.15706): DiLoCo whose outer gradients are sparse and of few bits. Error
// feedback takes the place of outer momentum:
//   D   = theta - theta_m                  this replica's outer gradient
//   D^  = C(beta * e + D)                  C: the largest of each chunk, 2 bits each
//   e   = beta * e + D - D^
//   theta = theta - outer_lr * mean_m(D^)
// Where training goes on while a round travels, its result is taken as in diloco.h.
// Every member sums the encodings of all (collective::Topology::kGather).
#include <memory>

#include "atoll/sync/strategy.h"

namespace atl::sync {

class SparseLoCo final : public Strategy {
 public:
  SparseLoCo(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
             const Clock& clock);
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  std::vector<std::vector<at::Tensor>> state_of(int64_t fragment) const override;
  Digest absorb(const collective::Commit& commit, int64_t number,
                std::span<const float> mean_P) override;
  void do_join() override;
  void launch(const OwnRound& own) override;
  void take(const OwnRound& own, Fate fate) override;
  Digest step_global(std::span<const float> mean_P);
  void adopt(int64_t round);
  Digest prepare(std::span<const float> mean_P, std::span<const float> own_P);

  float lr_;
  float decay_;
  at::Tensor global_P_;      // Host. theta
  at::Tensor residual_P_;    // Host. e
  at::Tensor corrected_P_;   // Host. beta * e + D while a round is in flight; e if it has no D.
  at::Tensor new_global_P_;  // Host. The round's results before its commit.
  at::Tensor new_residual_P_;
};

}  // namespace atl::sync
