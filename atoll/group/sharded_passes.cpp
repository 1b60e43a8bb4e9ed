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
                             std::vector<model::PartSpans> spans)
    : processes_(processes),
      sums_(sums),
      parameters_(parameters),
      own_(processes.rank() == 0 ? Span{0, parts.size()} : parts.of(processes.rank())) {
  for (model::PartSpans& one : spans) parts_.push_back({.spans = std::move(one)});
}

void ShardedPasses::begin(int64_t /*num_passes*/) {
  parameters_.forget_narrow(0, parameters_.values_P().numel());  // Of who evaluated here.
}

void ShardedPasses::before(int64_t part) {
  if (part == 0) finish_sums(0);  // A tied head adds to the embedding's gradients before its turn.
  receive(at(part));
  if (part == last()) {
    goes_back_ = true;
  } else if (!goes_back_) {
    ask(at(part + 1));
  } else if (part > 1) {  // The embedding's values are not read on the way back.
    ask(at(part - 1));
  }
}

void ShardedPasses::behind(int64_t part) {
  if (part + 1 < last()) give_back(at(part));  // The last layer is the first on the way back.
}

void ShardedPasses::back(int64_t part) {
  Part& done = at(part);
  for (const Span& span : done.spans.gradients) sums_.begin(span, done.summed);
  being_summed_.push_back(&done);
  give_back(done);
  finish_sums(1);
  if (part == 0) goes_back_ = false;
}

void ShardedPasses::end() { finish_sums(0); }

void ShardedPasses::clear_gradients() {
  const at::NoGradGuard no_grad;
  const at::Tensor& gradients_P = parameters_.gradients_P();
  const Span own = sums_.own();
  forget(gradients_P, {0, gradients_P.numel()}, own);
  gradients_P.slice(0, own.first, own.second).zero_();
}

void ShardedPasses::ask(Part& part) {
  if (part.is_here || !part.coming.empty()) return;
  for (const auto& [begin, end] : part.spans.values) {
    part.coming.push_back(
        processes_.begin_broadcast(parameters_.values_P().slice(0, begin, end), /*rank=*/0));
  }
}

void ShardedPasses::receive(Part& part) {
  ask(part);
  if (part.is_here) return;
  for (Transfer& transfer : part.coming) transfer.wait();
  part.coming.clear();
  part.is_here = true;
  for (const auto& [begin, end] : part.spans.values) parameters_.narrow(begin, end);
}

void ShardedPasses::give_back(Part& part) {
  if (!std::exchange(part.is_here, false)) return;
  for (const Span& span : part.spans.values) {
    forget(parameters_.values_P(), span, own_);
    parameters_.forget_narrow(span.first, span.second);
  }
}

void ShardedPasses::finish_sums(size_t num_left) {
  while (being_summed_.size() > num_left) {
    Part& part = *being_summed_.front();
    being_summed_.pop_front();
    for (Transfer& transfer : part.summed) transfer.wait();
    part.summed.clear();
    for (const Span& span : part.spans.gradients) {
      forget(parameters_.gradients_P(), span, sums_.own());
    }
  }
}

}  // namespace atl::group
