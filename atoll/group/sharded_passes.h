#pragma once
// Passes over a model of which a process has its part of the values and gradients alone (ZeRO-3,
// Rajbhandari et al. 2020, arXiv 1910.02054): what a layer reads comes from process 0, which has
// all values, while the layer before is computed, and its memory is given back behind it. Gradients
// go to their owners in each pass.
#include <deque>
#include <vector>

#include "atoll/group/passes.h"

namespace atl::group {

class ShardedPasses final : public Passes {
 public:
  /// References outlive it. The parameters lie in memory of the CPU.
  ShardedPasses(Processes& processes, GradientSums& sums, const model::Parameters& parameters,
                const Parts& parts, std::vector<model::StageSpans> spans);

  void begin(int64_t num_passes) override;
  void before(int64_t stage) override;
  void behind(int64_t stage) override;
  void back(int64_t stage) override;
  void end() override;
  void clear_gradients() override;

 private:
  using Transfers = std::vector<Transfer>;
  struct Stage {
    model::StageSpans spans;
    bool is_here = false;
    Transfers coming;  // Its values, if they are asked for and not here.
    Transfers summed;  // Its gradients.
  };

  Stage& at(int64_t stage) { return stages_.at(static_cast<size_t>(stage)); }
  int64_t last() const { return std::ssize(stages_) - 1; }
  void ask(Stage& stage);
  void receive(Stage& stage);
  void give_back(Stage& stage);
  /// Waits for the sums of all but the newest stages.
  void finish_sums(size_t num_left);

  Processes& processes_;
  GradientSums& sums_;
  const model::Parameters& parameters_;
  const Span own_;  // Values that stay: this process's, or all in process 0.
  std::vector<Stage> stages_;
  bool goes_back_ = false;
  std::deque<Stage*> being_summed_;  // The oldest first.
};

}  // namespace atl::group
