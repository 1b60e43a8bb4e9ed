#include "atoll/model/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include <cmath>
#include <optional>

namespace atl::model::composite {
namespace {

/// `num_heads` heads of qkv_BTF from head `first` on: (B, T, heads, N).
at::Tensor heads_BTHN(const AttentionShape& shape, const at::Tensor& qkv_BTF, int64_t first,
                      int64_t num_heads) {
  return qkv_BTF.narrow(2, first * shape.head_size, num_heads * shape.head_size)
      .unflatten(2, {num_heads, shape.head_size});
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return x * (x.square().mean(-1, true) + epsilon).rsqrt() * weight;
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const int64_t half = gate_up.size(-1) / 2;
  return at::silu(gate_up.narrow(-1, 0, half)) * gate_up.narrow(-1, half, half);
}

at::Tensor head_norm(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                     const at::Tensor& q_weight, const at::Tensor& k_weight, double epsilon) {
  const int64_t heads = shape.num_heads;
  const int64_t kv_heads = shape.num_kv_heads;
  const at::Tensor q = rms_norm(heads_BTHN(shape, qkv_BTF, 0, heads), q_weight, epsilon);
  const at::Tensor k = rms_norm(heads_BTHN(shape, qkv_BTF, heads, kv_heads), k_weight, epsilon);
  const at::Tensor v = heads_BTHN(shape, qkv_BTF, heads + kv_heads, kv_heads);
  return at::cat({q, k, v}, 2).flatten(2);
}

at::Tensor rotated(const AttentionShape& shape, const at::Tensor& qkv_BTF, const at::Tensor& cos_TR,
                   const at::Tensor& sin_TR) {
  const int64_t turned = shape.num_heads + shape.num_kv_heads;
  const int64_t half = cos_TR.size(1);
  if (half == 0) return qkv_BTF;
  const at::Tensor qk = heads_BTHN(shape, qkv_BTF, 0, turned);
  const at::Tensor low = qk.narrow(3, 0, half);
  const at::Tensor high = qk.narrow(3, half, half);
  const at::Tensor rest = qk.narrow(3, 2 * half, shape.head_size - 2 * half);
  const at::Tensor cosine = cos_TR.unsqueeze(1);  // Broadcast over the heads.
  const at::Tensor sine = sin_TR.unsqueeze(1);
  const at::Tensor result =
      at::cat({low * cosine - high * sine, high * cosine + low * sine, rest}, 3);
  return at::cat({result, heads_BTHN(shape, qkv_BTF, turned, shape.num_kv_heads)}, 2).flatten(2);
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
  if (!options.are_plain()) {
    const int64_t group = q_BHTN.size(1) / k_BGSN.size(1);
    const at::Tensor k_BHSN = k_BGSN.repeat_interleave(group, 1);
    at::Tensor scores_BHTS = (q_BHTN * scale).matmul(k_BHSN.transpose(2, 3));
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
        .matmul(v_BGSN.repeat_interleave(group, 1))
        .transpose(1, 2)
        .flatten(2);
  }
  // Needed for several tokens behind others, and where a window ends before the text does.
  const bool is_windowed = window > 0 && num_keys > window;
  std::optional<at::Tensor> mask;
  if ((num_keys > num_queries && num_queries > 1) || is_windowed) {
    mask = visible_TS(num_queries, num_keys, is_windowed ? window : 0, q_BHTN.device());
  }
  const bool is_causal = !mask && num_queries > 1;
  return at::scaled_dot_product_attention(q_BHTN, k_BGSN, v_BGSN, mask, 0.0, is_causal, scale,
                                          q_BHTN.size(1) != k_BGSN.size(1))
      .transpose(1, 2)
      .flatten(2);
}

at::Tensor attention(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                     const ScoreOptions& options) {
  const int64_t heads = shape.num_heads;
  const int64_t kv_heads = shape.num_kv_heads;
  return attend(heads_BTHN(shape, qkv_BTF, 0, heads).transpose(1, 2),
                heads_BTHN(shape, qkv_BTF, heads, kv_heads).transpose(1, 2),
                heads_BTHN(shape, qkv_BTF, heads + kv_heads, kv_heads).transpose(1, 2),
                shape.window, static_cast<double>(shape.scale), options);
}

}  // namespace atl::model::composite
