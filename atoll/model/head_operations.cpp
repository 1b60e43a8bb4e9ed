// The operations on the heads of queries, keys and values: norms, rotary positions, attention.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "atoll/model/composite.h"
#include "atoll/model/kernels.h"
#include "atoll/model/operation_parts.h"
#include "atoll/model/operations.h"

namespace atl::model {
namespace {

HeadShape query_heads(const AttentionShape& shape) {
  return {shape.batch * shape.positions, shape.row_width(), shape.num_heads, shape.head_size};
}

HeadShape key_heads(const AttentionShape& shape) {
  HeadShape heads = query_heads(shape);
  heads.num_heads = shape.num_kv_heads;
  return heads;
}

struct HeadNorm : Function<HeadNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const AttentionShape& shape, const Weight& q_weight,
                            const Weight& k_weight, double epsilon) {
    const at::Tensor y = qkv.clone();  // Values stay as they are.
    const int64_t rows = shape.batch * shape.positions;
    const int64_t keys = shape.num_heads * shape.head_size;
    const at::Tensor q_inverse = at::empty({rows, shape.num_heads}, at::kFloat);
    const at::Tensor k_inverse = at::empty({rows, shape.num_kv_heads}, at::kFloat);
    const auto eps = static_cast<float>(epsilon);
    of_type(qkv, [&]<typename T>(T) {
      const T* const from = in<T>(qkv);
      T* const to = out<T>(y);
      head_norm_forward(query_heads(shape), from, in(q_weight.value), eps, to, out(q_inverse));
      head_norm_forward(key_heads(shape), from + keys, in(k_weight.value), eps, to + keys,
                        out(k_inverse));
    });
    context->save_for_backward({qkv, q_inverse, k_inverse, q_weight.value, k_weight.value});
    context->saved_data["q_grad"] = q_weight.grad;
    context->saved_data["k_grad"] = k_weight.grad;
    context->saved_data["shape"] = std::vector<int64_t>{
        shape.batch, shape.positions, shape.num_heads, shape.num_kv_heads, shape.head_size};
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto sizes = context->saved_data["shape"].toIntVector();
    const AttentionShape shape{sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
    const int64_t keys = shape.num_heads * shape.head_size;
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dx = dy.clone();
    const at::Tensor dq_weight = gradient_target_like(context, saved[3], "q_grad");
    const at::Tensor dk_weight = gradient_target_like(context, saved[4], "k_grad");
    of_type(dy, [&]<typename T>(T) {
      const T* const from = in<T>(dy);
      const T* const x = in<T>(saved[0]);
      T* const to = out<T>(dx);
      head_norm_backward(query_heads(shape), from, x, in(saved[3]), in(saved[1]), to,
                         out(dq_weight));
      head_norm_backward(key_heads(shape), from + keys, x + keys, in(saved[4]), in(saved[2]),
                         to + keys, out(dk_weight));
    });
    return {dx, {}, {}, {}, {}};
  }
};

HeadShape turned_heads(const AttentionShape& shape) {
  HeadShape heads = query_heads(shape);
  heads.num_heads += shape.num_kv_heads;
  return heads;
}

Positions positions_of(const at::Tensor& cos_TR) { return {cos_TR.size(0), 2 * cos_TR.size(1)}; }

/// In place.
void rotate_heads(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& cosine,
                  const at::Tensor& sine, Turn turn) {
  of_type(qkv, [&]<typename T>(T) {
    rotate(turned_heads(shape), positions_of(cosine), out<T>(qkv), in(cosine), in(sine), turn);
  });
}

struct RotaryAttention : Function<RotaryAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const AttentionShape& shape, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    rotate_heads(shape, qkv, cosine, sine, Turn::kForwards);
    const at::Tensor result =
        at::empty({shape.batch, shape.positions, shape.num_heads * shape.head_size}, qkv.options());
    const at::Tensor log_sums =
        at::empty({shape.batch, shape.num_heads, shape.positions}, at::kFloat);
    of_type(qkv, [&]<typename T>(T) {
      attention_forward(shape, in<T>(qkv), out<T>(result), out(log_sums));
    });
    context->save_for_backward({qkv, result, log_sums, cosine, sine});
    context->saved_data["heads"] = shape.num_heads;
    context->saved_data["kv_heads"] = shape.num_kv_heads;
    context->saved_data["window"] = shape.window;
    context->saved_data["scale"] = static_cast<double>(shape.scale);
    return result;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& qkv = saved[0];
    const int64_t heads = context->saved_data["heads"].toInt();
    const AttentionShape shape{qkv.size(0),
                               qkv.size(1),
                               heads,
                               context->saved_data["kv_heads"].toInt(),
                               saved[1].size(2) / heads,
                               context->saved_data["window"].toInt(),
                               static_cast<float>(context->saved_data["scale"].toDouble())};
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dqkv = at::empty_like(qkv);
    of_type(qkv, [&]<typename T>(T) {
      attention_backward(shape, in<T>(qkv), in<T>(saved[1]), in<T>(dy), in(saved[2]), out<T>(dqkv));
    });
    rotate_heads(shape, dqkv, saved[3], saved[4], Turn::kBackwards);
    return {dqkv, {}, {}, {}};
  }
};

}  // namespace

at::Tensor head_norm(const AttentionShape& shape, const Weight& q_weight, const Weight& k_weight,
                     const at::Tensor& qkv_BTF, double epsilon) {
  if (!on_cpu(qkv_BTF)) {
    return composite::head_norm(shape, qkv_BTF, q_weight.value, k_weight.value, epsilon);
  }
  return HeadNorm::apply(qkv_BTF.contiguous(), shape, q_weight, k_weight, epsilon);
}

at::Tensor rotated(const AttentionShape& shape, const at::Tensor& qkv_BTF, const at::Tensor& cos_TR,
                   const at::Tensor& sin_TR) {
  if (!on_cpu(qkv_BTF)) return composite::rotated(shape, qkv_BTF, cos_TR, sin_TR);
  at::Tensor turned = qkv_BTF.contiguous();
  rotate_heads(shape, turned, cos_TR, sin_TR, Turn::kForwards);
  return turned;
}

at::Tensor rotary_attention(const AttentionShape& shape, const at::Tensor& qkv_BTF,
                            const at::Tensor& cos_TR, const at::Tensor& sin_TR) {
  if (!on_cpu(qkv_BTF) || !attention_kernel_available()) {
    return composite::attention(shape, composite::rotated(shape, qkv_BTF, cos_TR, sin_TR));
  }
  return RotaryAttention::apply(qkv_BTF.contiguous(), shape, cos_TR.contiguous(),
                                sin_TR.contiguous());
}

}  // namespace atl::model
