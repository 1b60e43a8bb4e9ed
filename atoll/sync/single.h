#pragma once
// One replica that agrees with nobody: plain training.
#include "atoll/sync/strategy.h"

namespace atl::sync {

class Single final : public Strategy {
 public:
  using Strategy::Strategy;
  bool syncs_after(int64_t step) const override;
  at::Tensor global_parameters() const override;
  void restore_global(const at::Tensor& global_P) override;
};

}  // namespace atl::sync
