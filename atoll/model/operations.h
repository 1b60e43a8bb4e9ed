#pragma once
// The model's operations with their gradients, on FP32 or BF16 (what comes in says which; weights
// and their gradients are FP32). On the CPU each is one pass over memory in both
// directions (kernels.h, attention_kernel.h); elsewhere a chain of LibTorch's (composite.h). The
// gradient of a weight is added straight to Weight::grad.
//
// Shapes: B = rows, T = positions, C = hidden size, F = (H + 2 G) N as in attention_kernel.h, R =
// the elements of a head that turn.
#include <ATen/core/Tensor.h>

#include <utility>

#include "atoll/model/attention_kernel.h"
#include "atoll/model/parameters.h"

namespace atl::model {

/// Whether what is made of it is to have a gradient, whoever has weights without one.
bool has_gradient(const at::Tensor& x);

/// All of the matrix, (outputs, inputs) in FP32.
at::Tensor widened(const StoredMatrix& matrix);

/// Rows of the weight: (B, T, C).
at::Tensor embed(const Weight& weight, const at::Tensor& tokens_BT);

/// x W^T. With a gradient for x through a matrix as stored as well: that is then widened for
/// LibTorch's products, forwards and backwards; it has to outlive the graph.
at::Tensor linear(const Weight& weight, const at::Tensor& x);

/// The same into out_MO, contiguous, without autograd.
void linear_into(const at::Tensor& out_MO, const Weight& weight, const at::Tensor& x_MI);

/// x W^T + b.
at::Tensor project(const Projection& projection, const at::Tensor& x);

/// LayerNorm over the last dimension (Ba et al. 2016).
at::Tensor layer_norm(const Projection& norm, const at::Tensor& x, double epsilon);

/// RMSNorm over the last dimension.
at::Tensor rms_norm(const Weight& weight, const at::Tensor& x, double epsilon);

/// (x + delta, RMSNorm of it): the residual stream and what the next part reads, in one pass in
/// each direction. An undefined delta is none.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const Weight& weight, const at::Tensor& x,
                                               const at::Tensor& delta, double epsilon);

/// (x + delta, project() of RMSNorm of it), with the same bits, which keeps nothing between the two
/// for the way back.
std::pair<at::Tensor, at::Tensor> project_rms_norm(const Projection& projection, const Weight& norm,
                                                   const at::Tensor& x, const at::Tensor& delta,
                                                   double epsilon);

/// silu(first half) * second half of the last dimension.
at::Tensor swiglu(const at::Tensor& gate_up);

/// project() of that, with the same bits, which keeps nothing between the two for the way back.
at::Tensor project_swiglu(const Projection& projection, const at::Tensor& gate_up);

/// gelu, with tanh; and that of the first half times the second half of the last dimension.
at::Tensor gelu_tanh(const at::Tensor& x);
at::Tensor geglu(const at::Tensor& gate_up);

/// gpt-oss's: gate and up lie in turn, (clamp(up) + 1) * gate' * sigmoid(1.702 gate') with gate' at
/// most 7 and up within 7.
at::Tensor clamped_swiglu(const at::Tensor& gate_up);

/// RMSNorm over each head of the queries and of the keys.
at::Tensor head_norm(const AttentionShape& shape, const Weight& q_weight, const Weight& k_weight,
                     const at::Tensor& qkv_BTF, double epsilon);

/// Rotary positions: pairs (i, i + R/2) of the first R elements of each head turn, cos and sin are
/// (T, R/2). Without autograd; on the CPU qkv_BTF itself is changed and returned.
at::Tensor rotated(const AttentionShape& shape, const at::Tensor& qkv_BTF, const at::Tensor& cos_TR,
                   const at::Tensor& sin_TR);

/// Rotary positions, then causal attention: (B, T, H N). May overwrite qkv_BTF, so the caller gives
/// it away.
at::Tensor rotary_attention(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                            const at::Tensor& cos_TR, const at::Tensor& sin_TR);

}  // namespace atl::model
