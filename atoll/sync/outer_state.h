#pragma once
// The published parameters and what the outer optimiser remembers of them, as host tensors. A
// method keeps two: one as the last committed round left it, and a spare that the next round
// writes.
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "atoll/base/hash.h"
#include "atoll/sync/outer_optimizer.h"

namespace atl::sync {

struct OuterState {
  at::Tensor theta_P;
  at::Tensor momentum_P;  // Undefined if the optimiser has none; so is the next.
  at::Tensor square_P;

  /// Zeros of `size` elements.
  OuterState(const OuterOptimizer& optimizer, int64_t size);
  /// Views of elements [begin, end).
  OuterState slice(int64_t begin, int64_t end) const;
  void copy_(const OuterState& from);
  OuterSpans<const float> read() const;
  OuterSpans<float> write() const;
  /// Of all tensors: what members compare before a round is committed.
  Digest digest() const;
  /// All tensors, in the order of the digest, each in one piece.
  std::vector<std::vector<at::Tensor>> tensors() const;
  /// What a checkpoint must hold besides theta.
  std::vector<std::pair<std::string, at::Tensor>> buffers() const;

 private:
  OuterState() = default;
};

}  // namespace atl::sync
