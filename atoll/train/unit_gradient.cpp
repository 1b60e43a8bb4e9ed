#include "atoll/train/unit_gradient.h"

#include <ATen/ops/empty.h>

#include <span>
#include <utility>
#include <vector>

#include "atoll/model/page_tensor.h"

namespace atl::train {

data::BatchOptions batch_options(const method::TrainOptions& options) {
  return {.sequence_length = options.sequence_length,
          .batch_rows = options.batch_rows,
          .seed = static_cast<uint64_t>(options.seed)};
}

UnitGradient::UnitGradient(Learner& learner, const data::Mixture& mixture,
                           const method::TrainOptions& options, int64_t num_units)
    : learner_(learner),
      rows_(mixture, data::Split::kTrain, batch_options(options)),
      num_units_(num_units),
      num_rows_(options.batch_rows / num_units),
      micro_rows_(options.micro_batch_rows > 0 ? options.micro_batch_rows : num_rows_),
      sequence_length_(options.sequence_length) {
  rows_.require_whole_batch();
}

double UnitGradient::add(int64_t unit) {
  learner_.begin_unit(unit);
  go_to(unit / num_units_);
  // Most likely those of the next step come next; another unit's are read like any others.
  const auto begin = static_cast<size_t>(unit % num_units_ * num_rows_);
  rows_.will_fill(std::span(next_rows_).subspan(begin, static_cast<size_t>(num_rows_)));
  const auto as_span = [](const at::Tensor& ids_BT) {
    return std::span(ids_BT.mutable_data_ptr<int64_t>(), static_cast<size_t>(ids_BT.numel()));
  };
  std::vector<Batch> batches;
  for (int64_t micro = 0; micro < num_rows_ / micro_rows_; ++micro) {
    const std::span<const int64_t> mine =
        std::span<const int64_t>(step_rows_)
            .subspan(begin + static_cast<size_t>(micro * micro_rows_),
                     static_cast<size_t>(micro_rows_));
    batches.push_back({at::empty({micro_rows_, sequence_length_}, at::kLong),
                       at::empty({micro_rows_, sequence_length_}, at::kLong)});
    rows_.fill(mine, as_span(batches.back().inputs_BT), as_span(batches.back().targets_BT));
  }
  return learner_.add_gradients(batches, 1);
}

/// Each step's rows are asked for once: where a pass over the data ends that orders all of the
/// next.
void UnitGradient::go_to(int64_t step) {
  if (step_ == step) return;
  step_rows_ = step_ && *step_ + 1 == step ? std::move(next_rows_) : rows_.rows(step);
  next_rows_ = rows_.rows(step + 1);
  step_ = step;
}

double UnitGradient::time(const Clock& clock) {
  double spent = 0;
  for (int turn = 0; turn < 2; ++turn) {  // The first also warms caches and allocators up.
    const Time begin = clock.now();
    add(0);
    spent = seconds(clock.now() - begin);
  }
  model::clear(learner_.parameters().gradients_P());
  return spent;
}

}  // namespace atl::train
