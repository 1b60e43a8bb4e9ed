#pragma once
// The published parameters and what the outer optimiser remembers of them, in host memory, on a
// disk (model/spilled_tensor.h), or on a device. A method keeps two: one as the last committed
// round left it, and a spare that the next round writes.
#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/method/outer_optimizer.h"

namespace atl::sync {

struct OuterState {
  at::Tensor theta_P;
  at::Tensor momentum_P;  // Undefined if the optimiser has none; so is the next.
  at::Tensor square_P;

  /// `zeros()` makes each tensor, all of one size.
  OuterState(const method::OuterOptimizer& optimizer, const std::function<at::Tensor()>& zeros);
  /// Views of elements [begin, end).
  OuterState slice(int64_t begin, int64_t end) const;
  void copy_(const OuterState& from);
  /// Of all tensors: what members compare before a round is committed.
  Digest digest() const;
  /// What is spilled leaves this process's memory.
  void rest() const;
  /// Makes `next`, on the same device, what a step of the optimiser with the host's `mean_P` as the
  /// gradient makes of this: the same bits wherever they are. `number` as in
  /// OuterOptimizer::step().
  void step(const method::OuterOptimizer& optimizer, int64_t number, std::span<const float> mean_P,
            OuterState& next) const;
  /// All tensors, in the order of the digest, each in one piece.
  std::vector<std::vector<at::Tensor>> tensors() const;
  /// What a checkpoint must hold besides theta.
  std::vector<std::pair<std::string, at::Tensor>> buffers() const;

 private:
  OuterState() = default;
  void step_on_device(const method::OuterOptimizer& optimizer, int64_t number,
                      const at::Tensor& delta_P, OuterState& next) const;
};

}  // namespace atl::sync
