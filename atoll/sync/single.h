#pragma once
// One replica that agrees with nobody: plain training.
#include "atoll/sync/strategy.h"

namespace atl::sync {

class Single final : public Strategy {
 public:
  explicit Single(Replica replica);
  Result<void> reduce_gradients(int64_t step) override;
  Result<void> after_step(int64_t step) override;
  bool syncs_after(int64_t step) const override;
  at::Tensor global_parameters() const override;
  std::vector<std::pair<std::string, at::Tensor>> state() override;
  void restore_global(const at::Tensor& global_P) override;

 private:
  Replica replica_;
};

}  // namespace atl::sync
