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
                const Parts& parts, std::vector<model::PartSpans> spans);

  void begin(int64_t num_passes) override;
  void before(int64_t part) override;
  void behind(int64_t part) override;
  void back(int64_t part) override;
  void end() override;
  void clear_gradients() override;

 private:
  using Transfers = std::vector<Transfer>;
  struct Part {
    model::PartSpans spans;
    bool is_here = false;
    Transfers coming;  // Its values, if they are asked for and not here.
    Transfers summed;  // Its gradients.
  };

  Part& at(int64_t part) { return parts_.at(static_cast<size_t>(part)); }
  int64_t last() const { return std::ssize(parts_) - 1; }
  void ask(Part& part);
  void receive(Part& part);
  void give_back(Part& part);
  /// Waits for the sums of all but the newest parts.
  void finish_sums(size_t num_left);

  Processes& processes_;
  GradientSums& sums_;
  const model::Parameters& parameters_;
  const Span own_;  // Values that stay: this process's, or all in process 0.
  std::vector<Part> parts_;
  bool goes_back_ = false;
  std::deque<Part*> being_summed_;  // The oldest first.
};

}  // namespace atl::group
