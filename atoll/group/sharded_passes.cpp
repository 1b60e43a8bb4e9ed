#include "atoll/group/sharded_passes.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "atoll/model/page_tensor.h"

namespace atl::group {
namespace {

void forget(const at::Tensor& values_P, Span span, Span kept) {
  for (const auto& [begin, end] : without(span, kept)) {
    model::forget(values_P.slice(0, begin, end));
  }
}

}  // namespace

ShardedPasses::ShardedPasses(Processes& processes, GradientSums& sums,
                             const model::Parameters& parameters, const Parts& parts,
                             std::vector<model::StageSpans> spans)
    : processes_(processes),
      sums_(sums),
      parameters_(parameters),
      own_(processes.rank() == 0 ? Span{0, parts.size()} : parts.of(processes.rank())) {
  for (model::StageSpans& one : spans) stages_.push_back({.spans = std::move(one)});
  clear_gradients();  // Whoever timed one before has touched them.
}

void ShardedPasses::begin(int64_t /*num_passes*/) {
  parameters_.forget_narrow(0, parameters_.values_P().numel());  // Of who evaluated here.
}

void ShardedPasses::before(int64_t stage) {
  if (stage == 0) finish_sums(0);  // A tied head adds to the embedding's gradients before its turn.
  receive(at(stage));
  if (stage == last()) {
    goes_back_ = true;
  } else if (!goes_back_) {
    ask(at(stage + 1));
  } else if (stage > 1) {  // The embedding's values are not read on the way back.
    ask(at(stage - 1));
  }
}

void ShardedPasses::behind(int64_t stage) {
  if (stage + 1 < last()) give_back(at(stage));  // The last layer is the first on the way back.
}

void ShardedPasses::back(int64_t stage) {
  Stage& done = at(stage);
  for (const Span& span : done.spans.gradients) sums_.begin(span, done.summed);
  being_summed_.push_back(&done);
  give_back(done);
  finish_sums(1);
  if (stage == 0) goes_back_ = false;
}

void ShardedPasses::end() { finish_sums(0); }

void ShardedPasses::clear_gradients() {
  const at::NoGradGuard no_grad;
  const at::Tensor& gradients_P = parameters_.gradients_P();
  const Span own = sums_.own();
  forget(gradients_P, {0, gradients_P.numel()}, own);
  model::clear(gradients_P.slice(0, own.first, own.second));
}

void ShardedPasses::ask(Stage& stage) {
  if (stage.is_here || !stage.coming.empty()) return;
  for (const auto& [begin, end] : stage.spans.values) {
    stage.coming.push_back(
        processes_.begin_broadcast(parameters_.values_P().slice(0, begin, end), /*rank=*/0));
  }
}

void ShardedPasses::receive(Stage& stage) {
  ask(stage);
  if (stage.is_here) return;
  for (Transfer& transfer : stage.coming) transfer.wait();
  stage.coming.clear();
  stage.is_here = true;
  for (const auto& [begin, end] : stage.spans.values) parameters_.narrow(begin, end);
}

void ShardedPasses::give_back(Stage& stage) {
  if (!std::exchange(stage.is_here, false)) return;
  for (const Span& span : stage.spans.values) {
    forget(parameters_.values_P(), span, own_);
    parameters_.forget_narrow(span.first, span.second);
  }
}

void ShardedPasses::finish_sums(size_t num_left) {
  while (being_summed_.size() > num_left) {
    Stage& stage = *being_summed_.front();
    being_summed_.pop_front();
    for (Transfer& transfer : stage.summed) transfer.wait();
    stage.summed.clear();
    for (const Span& span : stage.spans.gradients) {
      forget(parameters_.gradients_P(), span, sums_.own());
    }
  }
}

}  // namespace atl::group
