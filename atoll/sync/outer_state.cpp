#include "atoll/sync/outer_state.h"

#include <ATen/ops/zeros.h>

#include "atoll/sync/host.h"

namespace atl::sync {
namespace {

template <typename Float>
std::span<Float> span_or_none(const at::Tensor& host_P) {
  return host_P.defined() ? std::span<Float>(span_of(host_P)) : std::span<Float>();
}

template <typename Float>
OuterSpans<Float> spans(const OuterState& state) {
  return {.theta_P = span_or_none<Float>(state.theta_P),
          .momentum_P = span_or_none<Float>(state.momentum_P),
          .square_P = span_or_none<Float>(state.square_P)};
}

}  // namespace

OuterState::OuterState(const OuterOptimizer& optimizer, int64_t size)
    : theta_P(at::zeros({size}, at::kFloat)) {
  if (optimizer.has_momentum()) momentum_P = at::zeros({size}, at::kFloat);
  if (optimizer.has_square()) square_P = at::zeros({size}, at::kFloat);
}

OuterState OuterState::slice(int64_t begin, int64_t end) const {
  const auto cut = [&](const at::Tensor& x_P) {
    return x_P.defined() ? x_P.slice(0, begin, end) : at::Tensor();
  };
  OuterState part;
  part.theta_P = cut(theta_P);
  part.momentum_P = cut(momentum_P);
  part.square_P = cut(square_P);
  return part;
}

void OuterState::copy_(const OuterState& from) {
  theta_P.copy_(from.theta_P);
  if (momentum_P.defined()) momentum_P.copy_(from.momentum_P);
  if (square_P.defined()) square_P.copy_(from.square_P);
}

OuterSpans<const float> OuterState::read() const { return spans<const float>(*this); }

OuterSpans<float> OuterState::write() const { return spans<float>(*this); }

Digest OuterState::digest() const {
  Sha256 hash;
  for (const at::Tensor& x_P : {theta_P, momentum_P, square_P}) {
    if (x_P.defined()) hash.update(tree_digest(bytes_of(x_P)));
  }
  return hash.finish();
}

std::vector<std::vector<at::Tensor>> OuterState::tensors() const {
  std::vector<std::vector<at::Tensor>> tensors;
  for (const at::Tensor& x_P : {theta_P, momentum_P, square_P}) {
    if (x_P.defined()) tensors.push_back({x_P});
  }
  return tensors;
}

std::vector<std::pair<std::string, at::Tensor>> OuterState::buffers() const {
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  if (momentum_P.defined()) buffers.emplace_back("outer.momentum", momentum_P);
  if (square_P.defined()) buffers.emplace_back("outer.square", square_P);
  return buffers;
}

}  // namespace atl::sync
