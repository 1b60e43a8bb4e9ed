#pragma once
// The validation losses of a run: of the model before the first step, of this island's own
// parameters at the end, and of what the run publishes. One owner thread.
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "atoll/base/clock.h"
#include "atoll/data/batches.h"
#include "atoll/island/materials.h"
#include "atoll/method/train_options.h"
#include "atoll/run/time_spent.h"

namespace atl::island {

class Validation {
 public:
  /// References outlive it. `before_change` is called before the model's parameters change: they
  /// are lent to other values, and come back.
  Validation(Materials& materials, train::Learner& learner, const method::TrainOptions& options,
             const Clock& clock, run::TimeSpent& time, std::function<void()> before_change);

  /// Of a checkpoint.
  void restore(double start, double island);
  /// Before the first step, unless it was measured by an earlier process;
  void measure_start(const at::Tensor& global_P);
  /// the island was not there then.
  void has_no_start();
  /// Of the live parameters.
  void measure_island();
  void measure_global(const at::Tensor& global_P);

  double start() const { return start_; }
  double island() const { return island_; }
  /// The newest; nothing before the first.
  const std::optional<double>& global() const { return global_; }

 private:
  double measure(const at::Tensor& parameters_P);

  train::Learner& learner_;
  data::Batches rows_;
  const method::TrainOptions& options_;
  const int64_t batch_rows_;
  const Clock& clock_;
  run::TimeSpent& time_;
  std::function<void()> before_change_;
  double start_ = -1;  // < 0: not measured.
  double island_ = 0;
  std::optional<double> global_;
};

}  // namespace atl::island
