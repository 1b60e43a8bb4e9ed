#pragma once
// The outer optimiser of DiLoCo on host memory. It writes into spare buffers, because a member may
// apply a round only once it is committed. Compiled without fused multiply-add: every machine must
// get the same bits. Shape suffix: P = the parameters of a fragment.
#include <span>

namespace atl::sync {

struct OuterOptimizer {
  float lr = 0.7F;
  float momentum = 0.9F;
  bool nesterov = true;

  /// One step of torch.optim.SGD(lr, momentum, nesterov, dampening=0) with `delta_P` as the
  /// gradient (DiLoCo, arXiv 2311.08105, algorithm 1):
  ///   buf' = momentum * buf + delta
  ///   theta' = theta - lr * (delta + momentum * buf')   (Nesterov)
  ///   theta' = theta - lr * buf'                         (heavy ball)
  /// All spans have one length.
  void step(std::span<const float> delta_P, std::span<const float> theta_P,
            std::span<const float> buf_P, std::span<float> new_theta_P,
            std::span<float> new_buf_P) const;
};

}  // namespace atl::sync
