#pragma once
// The mean gradient at every step: the method that low-communication methods are compared with. A
// codec that leaves values out has error feedback (Seide et al. 2014; Karimireddy et al. 2019,
// 1901.09847): each replica adds what was left out to its next gradient. With C the codec:
//   sent_m = C(g_m + e_m),   e_m = g_m + e_m - sent_m,   g = mean_m sent_m
// Every member then sums the encodings of all (collective::Topology::kGather).
#include <memory>

#include "atoll/sync/strategy.h"

namespace atl::sync {

class DataParallel final : public Strategy {
 public:
  DataParallel(const method::SyncOptions& options, Replica replica, collective::Averager& averager,
               const Clock& clock);
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Result<void> do_reduce_gradients(int64_t step) override;
  Digest prepare(std::span<const float> mean_P, std::span<const float> own_P);

  at::Tensor mean_P_;  // Host copy of the agreed mean.
  at::Tensor live_P_;  // Host copy of the parameters, for the digest.
  // Host; undefined unless the codec leaves values out.
  at::Tensor residual_P_;      // e
  at::Tensor corrected_P_;     // g_m + e while a round is in flight.
  at::Tensor new_residual_P_;  // The round's, before its commit.
};

}  // namespace atl::sync
