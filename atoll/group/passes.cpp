#include "atoll/group/passes.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "atoll/model/page_tensor.h"

namespace atl::group {

SummedPasses::SummedPasses(GradientSums& sums, const model::Parameters& parameters,
                           std::vector<model::StageSpans> spans)
    : sums_(sums), parameters_(parameters), spans_(std::move(spans)) {}

void SummedPasses::begin(int64_t num_passes) {
  num_left_ = num_passes;
  parameters_.narrow();
}

void SummedPasses::back(int64_t stage) {
  if (num_left_ == 1) {
    for (const Span& span : spans_[static_cast<size_t>(stage)].gradients) {
      sums_.begin(span, transfers_);
    }
  }
  if (stage == 0) --num_left_;
}

void SummedPasses::end() {
  if (spans_.empty()) sums_.begin({0, parameters_.gradients_P().numel()}, transfers_);
  for (Transfer& transfer : transfers_) transfer.wait();
  transfers_.clear();
}

void SummedPasses::clear_gradients() {
  const at::NoGradGuard no_grad;
  model::clear(parameters_.gradients_P());
}

}  // namespace atl::group
