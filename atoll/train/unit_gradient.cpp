#include "atoll/train/unit_gradient.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <span>
#include <vector>

namespace atl::train {

data::BatchOptions batch_options(const method::TrainOptions& options) {
  return {.sequence_length = options.sequence_length,
          .batch_rows = options.batch_rows,
          .seed = static_cast<uint64_t>(options.seed)};
}

UnitGradient::UnitGradient(model::Model& model, const model::Model* teacher,
                           const data::Mixture& mixture, const method::TrainOptions& options,
                           int64_t num_units)
    : model_(model),
      rows_(mixture, data::Split::kTrain, batch_options(options)),
      loss_{.z_loss = options.z_loss, .teacher = teacher, .teacher_share = options.teacher_share},
      num_units_(num_units),
      num_rows_(options.batch_rows / num_units),
      inputs_BT_(at::empty({options.micro_batch_rows > 0 ? options.micro_batch_rows : num_rows_,
                            options.sequence_length},
                           at::kLong)),
      targets_BT_(at::empty_like(inputs_BT_)) {
  rows_.require_whole_batch();
}

double UnitGradient::add(int64_t unit) {
  const std::vector<int64_t> rows = rows_.rows(unit / num_units_);
  const int64_t micro_rows = inputs_BT_.size(0);
  const int64_t num_micro = num_rows_ / micro_rows;
  const auto as_span = [](const at::Tensor& ids_BT) {
    return std::span(ids_BT.mutable_data_ptr<int64_t>(), static_cast<size_t>(ids_BT.numel()));
  };
  const auto begin = static_cast<size_t>(unit % num_units_ * num_rows_);
  double sum = 0;
  for (int64_t micro = 0; micro < num_micro; ++micro) {
    const std::span<const int64_t> mine = std::span(rows).subspan(
        begin + static_cast<size_t>(micro * micro_rows), static_cast<size_t>(micro_rows));
    rows_.fill(mine, as_span(inputs_BT_), as_span(targets_BT_));
    const at::Device device = model_.device();
    LossOptions options = loss_;
    options.scale = 1.0 / static_cast<double>(num_micro);
    const Loss loss =
        accumulate_gradients(model_, inputs_BT_.to(device), targets_BT_.to(device), options);
    sum += loss.cross_entropy.item<double>();
  }
  return sum / static_cast<double>(num_micro);
}

double UnitGradient::time(const Clock& clock) {
  double spent = 0;
  for (int turn = 0; turn < 2; ++turn) {  // The first also warms caches and allocators up.
    const Time begin = clock.now();
    add(0);
    spent = seconds(clock.now() - begin);
  }
  model_.parameters().gradients_P().zero_();
  return spent;
}

}  // namespace atl::train
