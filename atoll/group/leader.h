#pragma once
// Process 0's side of a training run: a Learner and an InnerOptimizer, as the loop around them
// knows them, whose work all processes of the island do. What else there is of a run (strategy,
// checkpoints, validation) is process 0's alone. The values change there outside of the optimiser,
// too: who changes them says so (values_changed()), and the others get them before the next
// gradient. Owned by one thread.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/group/command.h"
#include "atoll/group/processes.h"
#include "atoll/group/share.h"
#include "atoll/method/train_options.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/train/learner.h"

namespace atl::group {

struct LeaderParts {
  Processes& processes;
  std::unique_ptr<train::Learner> learner;  // Of this process alone.
  method::TrainOptions options;
  /// Whether the gradient changes here between its sum and its use.
  bool changes_gradient = false;
  Command begin;  // Its settings, data and units.
  /// Where gathered moments are spilled to; empty: they are in memory.
  std::filesystem::path spill_folder = {};
};

class Leader {
 public:
  /// The others begin such a run. Throws InputError where one cannot.
  explicit Leader(LeaderParts parts);

  /// They refer to this object.
  std::unique_ptr<train::Learner> learner();
  std::unique_ptr<train::InnerOptimizer> optimizer();
  /// train::gradient_norm() of the gradient that the optimiser's next step takes.
  double gradient_norm() const;
  /// The values, or the moments that the optimiser gave, are not those of its last step.
  void values_changed() { has_new_values_ = true; }
  void moments_changed();

 private:
  class WholeLearner;
  class WholeOptimizer;
  void begin_unit(int64_t unit);
  void update(int64_t number, const train::StepOptions& options);
  std::vector<std::pair<std::string, at::Tensor>> moments();

  const LeaderParts parts_;
  Share share_;
  bool has_new_values_ = true;
  double norm_ = 0;  // Of the last sum, if it is by parts.
  /// Gathered since the last update; they are what the processes have.
  std::vector<std::pair<std::string, at::Tensor>> given_moments_;
};

}  // namespace atl::group
