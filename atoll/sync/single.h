#pragma once
// One replica that agrees with nobody: plain training.
#include "atoll/sync/strategy.h"

namespace atl::sync {

class Single final : public Strategy {
 public:
  using Strategy::Strategy;
  at::Tensor global_parameters() const override;
  void restore_global(const at::Tensor& global_P) override;
};

}  // namespace atl::sync
