#pragma once
// The model's operations as chains of LibTorch's, on any device, with gradients. They serve other
// devices than the CPU, and are what the CPU kernels are tested against. Results have the type of
// the activations, which may be BF16 where weights are FP32.
//
// Shapes: B = rows, T = positions, F = (H + 2 G) N as in attention_kernel.h.
#include <ATen/core/Tensor.h>

#include "atoll/model/attention_kernel.h"
#include "atoll/model/kernels.h"

namespace atl::model::composite {

/// x / rms(x) * weight over the last dimension.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// silu(first half) * second half of the last dimension.
at::Tensor swiglu(const at::Tensor& gate_up);

/// The queries and keys of qkv_BTF normalised head by head; values as they are.
at::Tensor head_norm(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                     const at::Tensor& q_weight, const at::Tensor& k_weight, double epsilon);

/// The first R elements of each query and key of qkv_BTF turned by their positions' angles; cos and
/// sin are (T, R / 2).
at::Tensor rotated(const AttentionShape& shape, const at::Tensor& qkv_BTF, const at::Tensor& cos_TR,
                   const at::Tensor& sin_TR);

/// What few families do with scores.
struct ScoreOptions {
  double softcap = 0;  // They become softcap tanh(score / softcap); 0: they stay.
  at::Tensor sinks_H;  // One more for each query head, without a value; undefined: none.

  bool are_plain() const { return softcap == 0 && !sinks_H.defined(); }
};

/// What the last T of S positions see, (T, S): themselves and what lies before them, `window` in
/// all (0: everything).
at::Tensor visible_TS(int64_t num_queries, int64_t num_keys, int64_t window, at::Device device);

/// Attention of the last T of S positions, with keys and values (B, G, S, N) where they lie: (B, T,
/// H N).
at::Tensor attend(const at::Tensor& q_BHTN, const at::Tensor& k_BGSN, const at::Tensor& v_BGSN,
                  int64_t window, double scale, const ScoreOptions& options);

/// Causal attention over a rotated qkv_BTF: (B, T, H N).
at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                     const ScoreOptions& options = {});

/// softmax_loss() of kernels.h: losses, squares and, if `scale` is not 0, gradients over the
/// logits, with scale / count (a scalar on the device) for scale.
void softmax_loss(const at::Tensor& logits_MV, const at::Tensor& targets_M, const at::Tensor& count,
                  const SoftmaxLoss& options, const at::Tensor& losses_M,
                  const at::Tensor& squares_M);

/// out_MN = a_MK b_KN, or out_MN += a_MK b_KN when it `accumulates`. The factors may be narrower
/// than out_MN: sums are as wide as that. Without autograd.
void matmul(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
            bool accumulates = false);

}  // namespace atl::model::composite
