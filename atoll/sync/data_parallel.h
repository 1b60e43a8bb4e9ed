#pragma once
// The mean gradient at every step: the method that low-communication methods are compared with.
#include <memory>

#include "atoll/codec/codec.h"
#include "atoll/sync/strategy.h"

namespace atl::sync {

class DataParallel final : public Strategy {
 public:
  DataParallel(const SyncOptions& options, Replica replica, collective::Averager& averager,
               const Clock& clock);
  Result<void> reduce_gradients(int64_t step) override;
  Result<void> after_step(int64_t step) override;
  bool syncs_after(int64_t step) const override;
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Replica replica_;
  collective::Averager& averager_;
  const Clock& clock_;
  std::unique_ptr<codec::Codec> codec_;
  at::Tensor local_P_;  // Host copy of this replica's gradient.
  at::Tensor mean_P_;   // Host copy of the agreed mean.
  at::Tensor live_P_;   // Host copy of the parameters, for the digest.
};

}  // namespace atl::sync
