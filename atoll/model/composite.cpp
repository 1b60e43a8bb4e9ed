#include "atoll/model/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>
#include <vector>

namespace atl::model::composite {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct Heads {
  at::Tensor q_BTHN, k_BTGN, v_BTGN;
};

/// Views. Split, not narrowed: on the way back LibTorch then makes one tensor of three gradients,
/// not three of zeros with a gradient in each, and their sum.
Heads heads_of(const AttentionShape& shape, const at::Tensor& qkv_BTF) {
  const int64_t kv_heads = shape.num_kv_heads;
  const std::vector<at::Tensor> parts =
      qkv_BTF.unflatten(2, {shape.num_heads + 2 * kv_heads, shape.head_size})
          .split_with_sizes({shape.num_heads, kv_heads, kv_heads}, 2);
  return {parts[0], parts[1], parts[2]};
}

/// Of the gate and up halves the gradients are written into one tensor, where autograd would make
/// two, and silu(gate) is computed again instead of kept.
struct SwiGlu : Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    const int64_t half = gate_up.size(-1) / 2;
    context->save_for_backward({gate_up});
    return at::silu(gate_up.narrow(-1, 0, half)).mul_(gate_up.narrow(-1, half, half));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor gate_up = context->get_saved_variables()[0];
    const int64_t half = gate_up.size(-1) / 2;
    const at::Tensor gate = gate_up.narrow(-1, 0, half);
    const at::Tensor dgate_up = at::empty(gate_up.sizes(), gate_up.options());
    at::Tensor dgate = dgate_up.narrow(-1, 0, half);
    at::Tensor dup = dgate_up.narrow(-1, half, half);
    at::silu_backward_out(dgate, gradients[0] * gate_up.narrow(-1, half, half), gate);
    at::mul_out(dup, gradients[0], at::silu(gate));
    return {dgate_up};
  }
};

/// The first 2 half elements of each of the first `num_turned` heads by their angles, or, with
/// direction -1, back.
at::Tensor turned(const at::Tensor& x_BTHN, int64_t num_turned, const at::Tensor& cos_TR,
                  const at::Tensor& sin_TR, double direction) {
  const at::Tensor y_BTHN = at::empty(x_BTHN.sizes(), x_BTHN.options());
  const int64_t half = cos_TR.size(1);
  const at::Tensor cosine = cos_TR.unsqueeze(1);  // Broadcast over the heads.
  const at::Tensor sine = sin_TR.unsqueeze(1);
  const auto part = [&](const at::Tensor& heads, int64_t begin) {
    return heads.narrow(2, 0, num_turned).narrow(3, begin, half);
  };
  const at::Tensor low = part(x_BTHN, 0);
  const at::Tensor high = part(x_BTHN, half);
  at::Tensor y_low = part(y_BTHN, 0);
  at::Tensor y_high = part(y_BTHN, half);
  if (x_BTHN.is_cpu()) {  // Not fused: as the kernels round.
    y_low.copy_((low * cosine).sub_(high * sine, direction));
    y_high.copy_((high * cosine).add_(low * sine, direction));
  } else {
    at::mul_out(y_low, low, cosine).addcmul_(high, sine, -direction);
    at::mul_out(y_high, high, cosine).addcmul_(low, sine, direction);
  }
  const auto copy = [&](int64_t dimension, int64_t begin) {
    const int64_t size = x_BTHN.size(dimension) - begin;
    if (size == 0) return;
    y_BTHN.narrow(dimension, begin, size).copy_(x_BTHN.narrow(dimension, begin, size));
  };
  copy(3, 2 * half);
  copy(2, num_turned);
  return y_BTHN;
}

/// The way back is a turn back: nothing of the activations is kept for it.
struct Rotary : Function<Rotary> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_BTHN, int64_t num_turned,
                            const at::Tensor& cos_TR, const at::Tensor& sin_TR) {
    context->save_for_backward({cos_TR, sin_TR});
    context->saved_data["turned"] = num_turned;
    return turned(x_BTHN, num_turned, cos_TR, sin_TR, 1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    return {turned(gradients[0], context->saved_data["turned"].toInt(), saved[0], saved[1], -1),
            {},
            {},
            {}};
  }
};

at::Tensor repeated(const at::Tensor& x_BGSN, int64_t times) {
  return times == 1 ? x_BGSN : x_BGSN.repeat_interleave(times, 1);
}

/// softmax(scores) v by its definition. Scores are FP32 at least, also of narrow heads.
at::Tensor attend_by_definition(const at::Tensor& q_BHTN, const at::Tensor& k_BHSN,
                                const at::Tensor& v_BHSN, int64_t window, double scale,
                                const ScoreOptions& options) {
  const int64_t num_queries = q_BHTN.size(2);
  const int64_t num_keys = k_BHSN.size(2);
  const bool is_double = q_BHTN.scalar_type() == at::kDouble;
  const at::ScalarType wide = is_double ? at::kDouble : at::kFloat;
  at::Tensor scores_BHTS = (q_BHTN.to(wide) * scale).matmul(k_BHSN.to(wide).transpose(2, 3));
  if (options.softcap > 0) scores_BHTS = (scores_BHTS / options.softcap).tanh() * options.softcap;
  const at::Tensor seen_TS = visible_TS(num_queries, num_keys, window, q_BHTN.device());
  scores_BHTS = scores_BHTS.masked_fill(~seen_TS, -INFINITY);
  if (options.sinks_H.defined()) {
    const at::Tensor sinks_BHT1 =
        options.sinks_H.view({1, -1, 1, 1}).expand({q_BHTN.size(0), -1, num_queries, 1});
    scores_BHTS = at::cat({scores_BHTS, sinks_BHT1}, 3);
  }
  return scores_BHTS.softmax(3)
      .narrow(3, 0, num_keys)
      .to(v_BHSN.scalar_type())
      .matmul(v_BHSN)
      .transpose(1, 2)
      .flatten(2);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  // CUDA has one kernel for it each way, but only for weights of the same type.
  return at::rms_norm(x, {x.size(-1)}, weight.to(x.scalar_type()), epsilon);
}

at::Tensor swiglu(const at::Tensor& gate_up) { return SwiGlu::apply(gate_up); }

at::Tensor head_norm(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                     const at::Tensor& q_weight, const at::Tensor& k_weight, double epsilon) {
  const Heads heads = heads_of(shape, qkv_BTF);
  return at::cat({rms_norm(heads.q_BTHN, q_weight, epsilon),
                  rms_norm(heads.k_BTGN, k_weight, epsilon), heads.v_BTGN},
                 2)
      .flatten(2);
}

at::Tensor rotated(const AttentionShape& shape, const at::Tensor& qkv_BTF, const at::Tensor& cos_TR,
                   const at::Tensor& sin_TR) {
  if (cos_TR.size(1) == 0) return qkv_BTF;
  const int64_t num_turned = shape.num_heads + shape.num_kv_heads;
  const at::Tensor x_BTHN =
      qkv_BTF.unflatten(2, {num_turned + shape.num_kv_heads, shape.head_size});
  return Rotary::apply(x_BTHN, num_turned, cos_TR, sin_TR).flatten(2);
}

at::Tensor visible_TS(int64_t num_queries, int64_t num_keys, int64_t window, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kBool).device(device);
  const int64_t before = num_keys - num_queries;
  const at::Tensor causal_TS = at::ones({num_queries, num_keys}, options).tril(before);
  return window > 0 ? causal_TS.triu(before - window + 1) : causal_TS;
}

at::Tensor attend(const at::Tensor& q_BHTN, const at::Tensor& k_BGSN, const at::Tensor& v_BGSN,
                  int64_t window, double scale, const ScoreOptions& options) {
  const int64_t num_queries = q_BHTN.size(2);
  const int64_t num_keys = k_BGSN.size(2);
  const int64_t group = q_BHTN.size(1) / k_BGSN.size(1);
  if (!options.are_plain()) {
    return attend_by_definition(q_BHTN, repeated(k_BGSN, group), repeated(v_BGSN, group), window,
                                scale, options);
  }
  // Needed for several tokens behind others, and where a window ends before the text does.
  const bool is_windowed = window > 0 && num_keys > window;
  std::optional<at::Tensor> mask;
  if ((num_keys > num_queries && num_queries > 1) || is_windowed) {
    mask = visible_TS(num_queries, num_keys, is_windowed ? window : 0, q_BHTN.device());
  }
  const bool is_causal = !mask && num_queries > 1;
  // CUDA's flash kernels read shared keys where they lie, in half precision and without a mask. Its
  // other kernel wants keys for each head; without them all scores would be kept. One query has
  // few.
  const bool is_half = q_BHTN.scalar_type() == at::kBFloat16 || q_BHTN.scalar_type() == at::kHalf;
  const bool repeats = group > 1 && num_queries > 1 && (mask || !is_half);
  const int64_t times = repeats ? group : 1;
  return at::scaled_dot_product_attention(q_BHTN, repeated(k_BGSN, times), repeated(v_BGSN, times),
                                          mask, 0.0, is_causal, scale, group > times)
      .transpose(1, 2)
      .flatten(2);
}

at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                     const ScoreOptions& options) {
  const Heads heads = heads_of(shape, qkv_BTF);
  return attend(heads.q_BTHN.transpose(1, 2), heads.k_BTGN.transpose(1, 2),
                heads.v_BTGN.transpose(1, 2), shape.window, static_cast<double>(shape.scale),
                options);
}

void softmax_loss(const at::Tensor& logits_MV, const at::Tensor& targets_M, const at::Tensor& count,
                  const SoftmaxLoss& options, const at::Tensor& losses_M,
                  const at::Tensor& squares_M) {
  const at::Tensor counts_M = targets_M >= 0;
  const at::Tensor index_M1 = targets_M.clamp_min(0).unsqueeze(1);
  const bool is_narrow = logits_MV.scalar_type() == at::kBFloat16;
  const at::Tensor wide_MV = is_narrow ? logits_MV.to(at::kFloat) : logits_MV;
  // One kernel, where logsumexp() is five that read or write all logits.
  const at::Tensor logs_MV = at::_log_softmax(wide_MV, 1, /*half_to_float=*/false);
  const at::Tensor log_M = logs_MV.gather(1, index_M1).squeeze(1);
  const at::Tensor log_partition_M = wide_MV.gather(1, index_M1).squeeze(1) - log_M;
  losses_M.copy_((-log_M).masked_fill(~counts_M, 0));
  squares_M.copy_(log_partition_M.square().masked_fill(~counts_M, 0));
  if (options.scale == 0) return;
  const at::Tensor share_M = counts_M * (options.scale / count);
  // From here on wide_MV holds the gradient.
  at::Tensor gradient_MV = wide_MV;
  at::exp_out(gradient_MV, logs_MV)
      .mul_((share_M * (log_partition_M * (2 * options.z_loss) + 1)).unsqueeze(1))
      .scatter_add_(1, index_M1, -share_M.unsqueeze(1));
  if (is_narrow) logits_MV.copy_(gradient_MV);
}

void matmul(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
            bool accumulates) {
  at::Tensor out = out_MN;
  const at::ScalarType type = out.scalar_type();
  if (a_MK.scalar_type() == type) {
    accumulates ? at::addmm_out(out, out, a_MK, b_KN) : at::mm_out(out, a_MK, b_KN);
  } else if (out.is_cuda()) {  // Sums in the type of the result, and in the same kernel.
    accumulates ? at::addmm_out(out, out, a_MK, b_KN, type) : at::mm_out(out, a_MK, b_KN, type);
  } else {
    matmul(out, a_MK.to(type), b_KN.to(type), accumulates);
  }
}

}  // namespace atl::model::composite
