#pragma once
// What each process of an island does of a step, process 0 as the others: its share of a unit's
// rows forwards and backwards, the sum of all gradients, its update. Process 0 says when. Owned by
// one thread.
//
// With train.shard = "none" each process has all moments and makes the whole update. With "zero1"
// each has the moments of its part of P and updates that part, whose values the others get then.
// With "zero3" it has no other values and gradients either, but where a pass is (sharded_passes.h);
// process 0 has all values.
//
// Shapes: P = all parameters, S = the part of P that this process owns.
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/group/passes.h"
#include "atoll/group/processes.h"
#include "atoll/method/train_options.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/train/learner.h"

namespace atl::group {

/// Which batches of a unit are this process's: whole ones if they can be dealt evenly, else each
/// one's rows are. So the mean over processes is the mean over the unit, as all rows have as many
/// targets. `size`: of the island. Throws UsageError where neither goes.
std::vector<train::Batch> share_of(std::span<const train::Batch> batches, int64_t rank,
                                   int64_t size);

/// What lies in [begin, end) of a target's P, as a target of its own. No matrix is whole there.
train::OptimizerTarget part_of(const train::OptimizerTarget& target, int64_t begin, int64_t end);

class Share {
 public:
  struct Sums {
    double loss = 0;  // The mean over all processes.
    double norm = 0;  // Of the gradient; of part sums only.
  };

  /// References outlive it. `changes_gradient`: process 0 does so, between its sum and its use.
  /// Throws UsageError where it cannot be shared like that.
  Share(Processes& processes, train::Learner& learner, const method::TrainOptions& options,
        bool changes_gradient);
  ~Share();
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  /// Nothing of what was learned since the last update is used.
  void clear_gradients();

  /// All: adds the mean gradient of the batches, of which this process makes its share.
  Sums add_gradients(std::span<const train::Batch> batches);
  /// All: update `number`, from 1; gradients are zero afterwards.
  void update(int64_t number, const train::StepOptions& options);
  /// All: process 0's values.
  void take_values();

  bool is_sharded() const { return shard_ != "none"; }
  bool owner_sums() const { return sums_.who() == SumsFor::kOwners; }
  /// The inner optimiser's moments here: (P,), or (S,) if it is sharded.
  std::vector<std::pair<std::string, at::Tensor>> moments() { return optimizer_->state(); }
  /// All: process 0 gets all moments, (P,), by name, on its host; the others nothing. They are
  /// spilled to `spill_folder`, unless that is empty.
  std::vector<std::pair<std::string, at::Tensor>> gather_moments(
      const std::filesystem::path& spill_folder = {});
  /// All: they are process 0's: if they are sharded `moments`, as it got them, else those it has.
  void take_moments(const std::vector<std::pair<std::string, at::Tensor>>& moments);

 private:
  /// "zero3": of values and gradients, too, there are only this process's.
  bool keeps_parts() const { return shard_ == "zero3"; }
  std::unique_ptr<Passes> make_passes();

  Processes& processes_;
  train::Learner& learner_;
  const std::string shard_;  // "none", "zero1" or "zero3".
  const at::Tensor values_P_;
  const at::Tensor gradients_P_;
  const Parts parts_;
  const Span own_;  // Of P, which this process updates.
  GradientSums sums_;
  const std::unique_ptr<Passes> passes_;
  const std::unique_ptr<train::InnerOptimizer> optimizer_;
};

}  // namespace atl::group
