#pragma once
// The gradient that one replica adds in a step: of the rows of one unit of data, which is its share
// of a global batch, in micro-batches if memory asks for them.
//
// Shapes: B = rows of a micro-batch, T = sequence_length.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/data/batches.h"
#include "atoll/method/train_options.h"
#include "atoll/train/learner.h"

namespace atl::train {

/// How the settings want rows to be read.
data::BatchOptions batch_options(const method::TrainOptions& options);

class UnitGradient {
 public:
  /// A global batch is cut into `num_units`. Throws InputError when the data holds no whole one.
  /// References outlive it.
  UnitGradient(Learner& learner, const data::Mixture& mixture, const method::TrainOptions& options,
               int64_t num_units);

  /// Adds it to the learner's gradients; the mean cross entropy of the unit's rows.
  double add(int64_t unit);
  /// Seconds that one takes here. Nothing is changed.
  double time(const Clock& clock);
  /// Tokens of a unit.
  int64_t num_tokens() const { return num_rows_ * sequence_length_; }

 private:
  void go_to(int64_t step);

  Learner& learner_;
  data::Batches rows_;
  int64_t num_units_;
  int64_t num_rows_;    // Of a unit,
  int64_t micro_rows_;  // and of a micro-batch.
  int64_t sequence_length_;
  std::optional<int64_t> step_;  // Of which the rows are,
  std::vector<int64_t> step_rows_;
  std::vector<int64_t> next_rows_;  // and those of the step behind it.
};

}  // namespace atl::train
