#include "atoll/sync/outer_state.h"

#include <ATen/ops/full_like.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/model/spilled_tensor.h"
#include "atoll/sync/host.h"

namespace atl::sync {
namespace {

// Of a step on the host at a time: so much of what is spilled comes into memory.
constexpr int64_t kPiece = int64_t{1} << 22;

template <typename Float>
std::span<Float> span_or_none(const at::Tensor& host_P) {
  return host_P.defined() ? std::span<Float>(span_of(host_P)) : std::span<Float>();
}

template <typename Float>
method::OuterSpans<Float> spans(const OuterState& state) {
  return {.theta_P = span_or_none<Float>(state.theta_P),
          .momentum_P = span_or_none<Float>(state.momentum_P),
          .square_P = span_or_none<Float>(state.square_P)};
}

}  // namespace

OuterState::OuterState(const method::OuterOptimizer& optimizer,
                       const std::function<at::Tensor()>& zeros) {
  theta_P = zeros();
  if (optimizer.has_momentum()) momentum_P = zeros();
  if (optimizer.has_square()) square_P = zeros();
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

void OuterState::step(const method::OuterOptimizer& optimizer, int64_t number,
                      std::span<const float> mean_P, OuterState& next) const {
  if (!theta_P.is_cpu()) {
    return step_on_device(optimizer, number, view_of(std::as_bytes(mean_P)).to(theta_P.device()),
                          next);
  }
  ATOLL_CHECK(std::ssize(mean_P) == theta_P.numel());
  for (int64_t begin = 0; begin < theta_P.numel(); begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, theta_P.numel());
    const OuterState from = slice(begin, end);
    const OuterState to = next.slice(begin, end);
    optimizer.step(number,
                   mean_P.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
                   spans<const float>(from), spans<float>(to));
    from.rest();
    to.rest();
  }
}

/// One operation for each rounding of OuterOptimizer::step(), so that none is fused with another.
void OuterState::step_on_device(const method::OuterOptimizer& optimizer, int64_t number,
                                const at::Tensor& delta_P, OuterState& next) const {
  const auto momentum = static_cast<double>(optimizer.momentum);
  const auto lr = static_cast<double>(optimizer.lr);
  switch (optimizer.rule) {
    case method::OuterRule::kSgd:
      next.theta_P.copy_(theta_P.sub(delta_P.mul(lr)));
      return;
    case method::OuterRule::kHeavyBall:
      next.momentum_P.copy_(momentum_P.mul(momentum).add(delta_P));
      next.theta_P.copy_(theta_P.sub(next.momentum_P.mul(lr)));
      return;
    case method::OuterRule::kNesterov:
      next.momentum_P.copy_(momentum_P.mul(momentum).add(delta_P));
      next.theta_P.copy_(theta_P.sub(delta_P.add(next.momentum_P.mul(momentum)).mul(lr)));
      return;
    case method::OuterRule::kAdam: {
      const method::AdamScales scales = optimizer.adam_scales(number);
      const auto rest = static_cast<double>(1 - optimizer.momentum);
      const auto square_rest = static_cast<double>(1 - optimizer.beta2);
      next.momentum_P.copy_(momentum_P.mul(momentum).add(delta_P.mul(rest)));
      next.square_P.copy_(square_P.mul(static_cast<double>(optimizer.beta2))
                              .add(delta_P.mul(square_rest).mul(delta_P)));
      // Libraries may round a float's root wrongly, a double's not by enough to matter here.
      const at::Tensor root_P = next.square_P.to(at::kDouble)
                                    .sqrt()
                                    .to(at::kFloat)
                                    .div(at::full_like(theta_P, static_cast<double>(scales.root)))
                                    .add(static_cast<double>(optimizer.eps));
      next.theta_P.copy_(
          theta_P.sub(next.momentum_P.mul(static_cast<double>(scales.mean)).div(root_P)));
      return;
    }
  }
}

Digest OuterState::digest() const {
  Sha256 hash;
  for (const at::Tensor& x_P : {theta_P, momentum_P, square_P}) {
    if (!x_P.defined()) continue;
    hash.update(tree_digest(bytes_of(x_P.cpu())));
    model::let_rest(x_P);
  }
  return hash.finish();
}

void OuterState::rest() const {
  for (const at::Tensor& x_P : {theta_P, momentum_P, square_P}) model::let_rest(x_P);
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
