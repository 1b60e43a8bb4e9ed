#pragma once
// The gradient that one replica adds in a step: of the rows of one unit of data, which is its share
// of a global batch, in micro-batches if memory asks for them.
//
// Shapes: B = rows of a micro-batch, T = sequence_length.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "atoll/base/clock.h"
#include "atoll/data/batches.h"
#include "atoll/method/train_options.h"
#include "atoll/model/model.h"
#include "atoll/train/loss.h"

namespace atl::train {

/// How the settings want rows to be read.
data::BatchOptions batch_options(const method::TrainOptions& options);

class UnitGradient {
 public:
  /// A global batch is cut into `num_units`. Throws InputError when the data holds no whole one.
  /// References, and the teacher (null: none), outlive it.
  UnitGradient(model::Model& model, const model::Model* teacher, const data::Mixture& mixture,
               const method::TrainOptions& options, int64_t num_units);

  /// Adds it to the model's gradients; the mean cross entropy of the unit's rows.
  double add(int64_t unit);
  /// Seconds that one takes here. Nothing is changed.
  double time(const Clock& clock);
  /// Tokens of a unit.
  int64_t num_tokens() const { return num_rows_ * inputs_BT_.size(1); }

 private:
  model::Model& model_;
  data::Batches rows_;
  LossOptions loss_;  // Of a micro-batch.
  int64_t num_units_;
  int64_t num_rows_;  // Of a unit.
  at::Tensor inputs_BT_;
  at::Tensor targets_BT_;
};

}  // namespace atl::train
