#pragma once
// The mean gradient at every step: the method that low-communication methods are compared with.
#include <memory>

#include "atoll/sync/strategy.h"

namespace atl::sync {

class DataParallel final : public Strategy {
 public:
  DataParallel(const SyncOptions& options, Replica replica, collective::Averager& averager,
               const Clock& clock);
  bool syncs_after(int64_t step) const override;
  at::Tensor global_parameters() const override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Result<void> do_reduce_gradients(int64_t step) override;
  at::Tensor mean_P_;  // Host copy of the agreed mean.
  at::Tensor live_P_;  // Host copy of the parameters, for the digest.
};

}  // namespace atl::sync
