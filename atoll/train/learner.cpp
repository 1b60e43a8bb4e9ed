#include "atoll/train/learner.h"

#include <ATen/core/grad_mode.h>

namespace atl::train {

model::Purpose purpose_of(const method::TrainOptions& options) {
  return options.precision == "bf16" ? model::Purpose::kBf16Training : model::Purpose::kTraining;
}

double ModelLearner::add_gradients(std::span<const Batch> batches, double scale) {
  const at::Device device = model_.device();
  if (auto* const watcher = model_.decoder().watcher()) {
    watcher->begin(std::ssize(batches));
  } else {
    model_.parameters().narrow();
  }
  LossOptions options = options_;
  options.scale = scale / static_cast<double>(batches.size());
  double sum = 0;
  for (const Batch& batch : batches) {
    const Loss loss = accumulate_gradients(model_, batch.inputs_BT.to(device),
                                           batch.targets_BT.to(device), options);
    sum += loss.cross_entropy.item<double>();
  }
  return sum / static_cast<double>(batches.size());
}

double ModelLearner::cross_entropy(const Batch& batch) {
  const at::Device device = model_.device();
  model_.parameters().narrow();
  return evaluate_loss(model_, batch.inputs_BT.to(device), batch.targets_BT.to(device), {})
      .cross_entropy.item<double>();
}

}  // namespace atl::train
