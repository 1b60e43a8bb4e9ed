#pragma once
// The outer optimisers of DiLoCo on host memory. They write into spare buffers, because a member
// may apply a round only once it is committed. Compiled without fused multiply-add, and nothing is
// left to the mathematics library: every machine must get the same bits. Shape suffix: P = the
// parameters, or a fragment of them.
#include <cstdint>
#include <span>

#include "atoll/method/sync_options.h"

namespace atl::method {

/// What a step reads, or writes: the parameters and the optimiser's own buffers. A buffer that the
/// optimiser does not have is empty; all others have one length.
template <typename Float>
struct OuterSpans {
  std::span<Float> theta_P;
  std::span<Float> momentum_P;  // Adam: the running mean.
  std::span<Float> square_P;    // Adam: the running mean of squares.
};

enum class OuterRule {
  kSgd,
  kHeavyBall,
  kNesterov,
  kAdam,
};

struct AdamScales {
  float mean = 0;  // The learning rate over the mean's bias correction.
  float root = 0;  // The root of the square's.
};

struct OuterOptimizer {
  OuterRule rule = OuterRule::kNesterov;
  float lr = 0.7F;
  float momentum = 0.9F;  // Adam: beta 1.
  float beta2 = 0.99F;
  float eps = 0.1F;

  bool has_momentum() const { return rule != OuterRule::kSgd; }
  bool has_square() const { return rule == OuterRule::kAdam; }
  /// Tensors of the parameters' size that it goes on from: they, and what it remembers.
  int num_tensors() const { return 1 + int{has_momentum()} + int{has_square()}; }

  /// One step from `old` to `next` with `delta_P` as the gradient (DiLoCo, arXiv 2311.08105,
  /// algorithm 1); the maps of torch.optim.SGD (dampening 0) and torch.optim.Adam:
  ///   SGD         theta' = theta - lr * delta
  ///   heavy ball  buf' = momentum * buf + delta;  theta' = theta - lr * buf'
  ///   Nesterov    buf' = momentum * buf + delta;  theta' = theta - lr * (delta + momentum * buf')
  ///   Adam        m' = b1 m + (1 - b1) delta;  v' = b2 v + (1 - b2) delta^2;  with t = number
  ///               theta' = theta - lr * (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + eps)
  /// `number` counts these parameters' outer steps from 1; only Adam's bias correction uses it.
  /// `next` may be `old`.
  void step(int64_t number, std::span<const float> delta_P, const OuterSpans<const float>& old,
            const OuterSpans<float>& next) const;

  /// Of Adam's step of that number.
  AdamScales adam_scales(int64_t number) const;

 private:
  void adam_step(int64_t number, std::span<const float> delta_P, const OuterSpans<const float>& old,
                 const OuterSpans<float>& next) const;
};

/// The optimiser that the settings name.
OuterOptimizer make_outer_optimizer(const SyncOptions& options);

}  // namespace atl::method
