#pragma once
// What an island's process does for the others while a pass over its model goes on: gradients that
// are complete are summed while the way back goes on to the layers before.
#include <vector>

#include "atoll/group/gradient_sums.h"
#include "atoll/model/parameters.h"
#include "atoll/model/pass_watcher.h"

namespace atl::group {

class Passes : public model::PassWatcher {
 public:
  /// All passes are over: returns once all gradients are summed.
  virtual void end() = 0;
  /// All gradients are zero.
  virtual void clear_gradients() = 0;
};

/// Of a model that each process has whole. Gradients are summed in the last pass. Who learns
/// without a watcher has `spans` empty, and all are summed at the end.
class SummedPasses final : public Passes {
 public:
  /// References outlive it.
  SummedPasses(GradientSums& sums, const model::Parameters& parameters,
               std::vector<model::StageSpans> spans);

  void begin(int64_t num_passes) override;
  void before(int64_t /*stage*/) override {}
  void behind(int64_t /*stage*/) override {}
  void back(int64_t stage) override;
  void end() override;
  void clear_gradients() override;

 private:
  GradientSums& sums_;
  const model::Parameters& parameters_;
  const std::vector<model::StageSpans> spans_;
  int64_t num_left_ = 0;  // Passes, of those that begin() told of.
  std::vector<Transfer> transfers_;
};

}  // namespace atl::group
