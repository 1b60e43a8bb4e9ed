#include "atoll/model/operations.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "atoll/base/check.h"
#include "atoll/model/composite.h"
#include "atoll/model/kernels.h"
#include "atoll/model/matmul.h"

namespace atl::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

bool on_cpu(const at::Tensor& x) { return x.is_cpu() && x.scalar_type() == at::kFloat; }

Rows rows_of(const at::Tensor& x) { return {x.numel() / x.size(-1), x.size(-1)}; }

const float* in(const at::Tensor& x) { return x.const_data_ptr<float>(); }
float* out(const at::Tensor& x) { return x.mutable_data_ptr<float>(); }

/// Parameters are no inputs of the graph: their gradients go where `grad` points, if anywhere. Only
/// the embedding names its weight to autograd, so that everything behind it has a gradient.
void save(AutogradContext* context, const Weight& weight, variable_list tensors) {
  tensors.push_back(weight.value);
  context->save_for_backward(std::move(tensors));
  context->saved_data["grad"] = weight.grad;
}

at::Tensor gradient_target(AutogradContext* context, const char* name = "grad") {
  return context->saved_data[name].toTensor();
}

/// For kernels that always make one: where nobody wants it, it goes nowhere.
at::Tensor gradient_target_like(AutogradContext* context, const at::Tensor& weight,
                                const char* name = "grad") {
  const at::Tensor target = gradient_target(context, name);
  return target.defined() ? target : at::zeros_like(weight);
}

struct Embed : Function<Embed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& value,
                            const at::Tensor& tokens_BT, const at::Tensor& grad) {
    context->save_for_backward({tokens_BT});
    context->saved_data["grad"] = grad;
    return value.index_select(0, tokens_BT.reshape(-1))
        .view({tokens_BT.size(0), tokens_BT.size(1), value.size(1)});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor tokens = context->get_saved_variables()[0].reshape(-1);
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor target = gradient_target(context);
    if (on_cpu(dy)) {
      embedding_backward(rows_of(dy), tokens.const_data_ptr<int64_t>(), in(dy), out(target));
    } else {
      target.index_add_(0, tokens, dy.view({-1, dy.size(-1)}));
    }
    return {{}, {}, {}};
  }
};

struct Linear : Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Weight& weight) {
    save(context, weight, {x});
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = weight.value.size(0);
    return product(x.reshape({-1, x.size(-1)}), weight.value.t()).view(shape);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor dy_MO = gradients[0].reshape({-1, weight.size(0)});
    if (const at::Tensor target = gradient_target(context); target.defined()) {
      matmul(target, dy_MO.t(), x.reshape({-1, weight.size(1)}), /*accumulates=*/true);
    }
    return {product(dy_MO, weight).view(x.sizes()), {}};
  }
};

/// A matrix as its file holds it has no gradient, and none of its products in FP32 is kept.
struct FrozenLinear : Function<FrozenLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const StoredMatrix& matrix) {
    context->saved_data["matrix"] = reinterpret_cast<int64_t>(&matrix);
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = matrix.num_outputs();
    return product(x.reshape({-1, x.size(-1)}), widened(matrix).t()).view(shape);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& matrix =
        *reinterpret_cast<const StoredMatrix*>(context->saved_data["matrix"].toInt());
    const at::Tensor& dy = gradients[0];
    std::vector<int64_t> shape = dy.sizes().vec();
    shape.back() = matrix.num_inputs();
    return {product(dy.reshape({-1, dy.size(-1)}), widened(matrix)).view(shape), {}};
  }
};

/// y = RMSNorm(x + delta), or of x where there is no sum to write; what its gradient needs is kept.
at::Tensor normalise(AutogradContext* context, const at::Tensor& x, const at::Tensor& delta,
                     const at::Tensor& sum, const Weight& weight, double epsilon) {
  const at::Tensor y = at::empty_like(x);
  const Rows rows = rows_of(x);
  const at::Tensor inverse_rms = at::empty({rows.count}, x.options());
  const bool adds = delta.defined();
  rms_norm_forward(rows, in(x), adds ? in(delta) : nullptr, in(weight.value),
                   static_cast<float>(epsilon), adds ? out(sum) : nullptr, out(y),
                   out(inverse_rms));
  save(context, weight, {adds ? sum : x, inverse_rms});
  context->set_materialize_grads(false);
  return y;
}

/// The gradient of what was normalised: `dsum`, if any, and what comes through the norm.
at::Tensor normalise_backward(AutogradContext* context, const at::Tensor& dsum,
                              const at::Tensor& dnorm) {
  if (!dnorm.defined()) return dsum;
  const variable_list saved = context->get_saved_variables();
  const at::Tensor dy = dnorm.contiguous();
  const at::Tensor beside = dsum.defined() ? dsum.contiguous() : at::Tensor();
  const at::Tensor dx = at::empty_like(dy);
  rms_norm_backward(rows_of(dy), in(dy), beside.defined() ? in(beside) : nullptr, in(saved[0]),
                    in(saved[2]), in(saved[1]), out(dx),
                    out(gradient_target_like(context, saved[2])));
  return dx;
}

struct RmsNorm : Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Weight& weight,
                            double epsilon) {
    return normalise(context, x, {}, {}, weight, epsilon);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {normalise_backward(context, {}, gradients[0]), {}, {}};
  }
};

struct ForkedRmsNorm : Function<ForkedRmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const Weight& weight,
                               double epsilon) {
    return {x, normalise(context, x, {}, {}, weight, epsilon)};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {normalise_backward(context, gradients[0], gradients[1]), {}, {}};
  }
};

struct AddRmsNorm : Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& delta, const Weight& weight, double epsilon) {
    const at::Tensor sum = at::empty_like(x);
    const at::Tensor y = normalise(context, x, delta, sum, weight, epsilon);
    return {sum, y};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor dx = normalise_backward(context, gradients[0], gradients[1]);
    return {dx, dx, {}, {}};
  }
};

struct SwiGlu : Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    std::vector<int64_t> sizes = gate_up.sizes().vec();
    sizes.back() /= 2;
    const at::Tensor y = at::empty(sizes, gate_up.options());
    swiglu_forward(rows_of(y), in(gate_up), out(y));
    context->save_for_backward({gate_up});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dgate_up = at::empty_like(saved[0]);
    swiglu_backward(rows_of(dy), in(dy), in(saved[0]), out(dgate_up));
    return {dgate_up};
  }
};

/// For kernels that have no way back. LibTorch's own ones cut a tensor into parts for its threads,
/// and at the end of each the bits are others: a row's would hang on those that are read beside it.
bool is_plain(const at::Tensor& x) { return on_cpu(x) && !has_gradient(x); }

template <typename Kernel>
at::Tensor made_by(const Kernel& kernel, const at::Tensor& x, int64_t width) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = width;
  const at::Tensor y = at::empty(sizes, x.options());
  kernel(rows_of(y), in(x.contiguous()), out(y));
  return y;
}

/// The outputs named by tokens.
at::Tensor stored_rows(const StoredMatrix& weight, const at::Tensor& tokens_BT) {
  const at::Tensor tokens = tokens_BT.contiguous();
  const int64_t* const ids = tokens.const_data_ptr<int64_t>();
  std::vector<int64_t> shape = tokens.sizes().vec();
  shape.push_back(weight.num_inputs());
  const at::Tensor rows = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    weight.read_output(ids[i], out(rows) + i * weight.num_inputs());
  }
  return rows;
}

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
    const at::Tensor q_inverse = at::empty({rows, shape.num_heads}, qkv.options());
    const at::Tensor k_inverse = at::empty({rows, shape.num_kv_heads}, qkv.options());
    const auto eps = static_cast<float>(epsilon);
    head_norm_forward(query_heads(shape), in(qkv), in(q_weight.value), eps, out(y), out(q_inverse));
    head_norm_forward(key_heads(shape), in(qkv) + keys, in(k_weight.value), eps, out(y) + keys,
                      out(k_inverse));
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
    head_norm_backward(query_heads(shape), in(dy), in(saved[0]), in(saved[3]), in(saved[1]),
                       out(dx), out(gradient_target_like(context, saved[3], "q_grad")));
    head_norm_backward(key_heads(shape), in(dy) + keys, in(saved[0]) + keys, in(saved[4]),
                       in(saved[2]), out(dx) + keys,
                       out(gradient_target_like(context, saved[4], "k_grad")));
    return {dx, {}, {}, {}, {}};
  }
};

HeadShape turned_heads(const AttentionShape& shape) {
  HeadShape heads = query_heads(shape);
  heads.num_heads += shape.num_kv_heads;
  return heads;
}

Positions positions_of(const at::Tensor& cos_TR) { return {cos_TR.size(0), 2 * cos_TR.size(1)}; }

struct RotaryAttention : Function<RotaryAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const AttentionShape& shape, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    rotate(turned_heads(shape), positions_of(cosine), out(qkv), in(cosine), in(sine),
           Turn::kForwards);
    const at::Tensor result =
        at::empty({shape.batch, shape.positions, shape.num_heads * shape.head_size}, qkv.options());
    const at::Tensor log_sums =
        at::empty({shape.batch, shape.num_heads, shape.positions}, qkv.options());
    attention_forward(shape, in(qkv), out(result), out(log_sums));
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
    attention_backward(shape, in(qkv), in(saved[1]), in(dy), in(saved[2]), out(dqkv));
    rotate(turned_heads(shape), positions_of(saved[3]), out(dqkv), in(saved[3]), in(saved[4]),
           Turn::kBackwards);
    return {dqkv, {}, {}, {}};
  }
};

}  // namespace

bool has_gradient(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

at::Tensor widened(const StoredMatrix& matrix) {
  const int64_t width = matrix.num_inputs();
  const at::Tensor wide_OI = at::empty({matrix.num_outputs(), width}, at::kFloat);
  float* const values = out(wide_OI);
  const int64_t grain = std::max<int64_t>(1, 32'768 / width);
  at::parallel_for(0, matrix.num_outputs(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) matrix.read_output(i, values + i * width);
  });
  return wide_OI;
}

at::Tensor embed(const Weight& weight, const at::Tensor& tokens_BT) {
  if (weight.stored) return stored_rows(*weight.stored, tokens_BT);
  return Embed::apply(weight.value, tokens_BT, weight.grad.defined() ? weight.grad : weight.value);
}

at::Tensor linear(const Weight& weight, const at::Tensor& x) {
  if (!weight.stored) return Linear::apply(x, weight);
  if (has_gradient(x)) return FrozenLinear::apply(x, *weight.stored);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.num_outputs();
  const at::Tensor y = at::empty(shape, x.options());
  linear_into(y, weight, x);
  return y;
}

void linear_into(const at::Tensor& out_MO, const Weight& weight, const at::Tensor& x_MI) {
  if (!weight.stored) return matmul(out_MO, x_MI, weight.value.detach().t());
  const at::Tensor x = x_MI.contiguous();
  ATOLL_CHECK(x.size(-1) == weight.stored->num_inputs());
  weight.stored->multiply(rows_of(x).count, in(x), out(out_MO));
}

at::Tensor project(const Projection& projection, const at::Tensor& x) {
  const at::Tensor y = linear(projection.weight, x);
  return projection.bias.value.defined() ? y.add(projection.bias.value) : y;
}

at::Tensor layer_norm(const Projection& norm, const at::Tensor& x, double epsilon) {
  return at::layer_norm(x, {x.size(-1)}, norm.weight.value, norm.bias.value, epsilon);
}

at::Tensor rms_norm(const Weight& weight, const at::Tensor& x, double epsilon) {
  if (!on_cpu(x)) return composite::rms_norm(x, weight.value, epsilon);
  return RmsNorm::apply(x.contiguous(), weight, epsilon);
}

std::pair<at::Tensor, at::Tensor> forked_rms_norm(const Weight& weight, const at::Tensor& x,
                                                  double epsilon) {
  if (!on_cpu(x)) return {x, composite::rms_norm(x, weight.value, epsilon)};
  const variable_list both = ForkedRmsNorm::apply(x.contiguous(), weight, epsilon);
  return {both[0], both[1]};
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const Weight& weight, const at::Tensor& x,
                                               const at::Tensor& delta, double epsilon) {
  if (!on_cpu(x)) {
    const at::Tensor sum = x.add(delta);
    return {sum, composite::rms_norm(sum, weight.value, epsilon)};
  }
  const variable_list both = AddRmsNorm::apply(x.contiguous(), delta.contiguous(), weight, epsilon);
  return {both[0], both[1]};
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  return on_cpu(gate_up) ? SwiGlu::apply(gate_up.contiguous()) : composite::swiglu(gate_up);
}

at::Tensor gelu_tanh(const at::Tensor& x) {
  if (!is_plain(x)) return at::gelu(x, "tanh");
  return made_by(gelu_tanh_forward, x, x.size(-1));
}

at::Tensor geglu(const at::Tensor& gate_up) {
  const int64_t half = gate_up.size(-1) / 2;
  if (is_plain(gate_up)) return made_by(geglu_forward, gate_up, half);
  return at::gelu(gate_up.narrow(-1, 0, half), "tanh") * gate_up.narrow(-1, half, half);
}

at::Tensor clamped_swiglu(const at::Tensor& gate_up) {
  if (is_plain(gate_up)) return made_by(clamped_swiglu_forward, gate_up, gate_up.size(-1) / 2);
  constexpr double kLimit = 7;
  const at::Tensor pairs = gate_up.unflatten(-1, {gate_up.size(-1) / 2, 2});
  const at::Tensor gate = pairs.select(-1, 0).clamp_max(kLimit);
  const at::Tensor up = pairs.select(-1, 1).clamp(-kLimit, kLimit);
  return (up + 1) * gate * (gate * 1.702).sigmoid();
}

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
  rotate(turned_heads(shape), positions_of(cos_TR), out(turned), in(cos_TR), in(sin_TR),
         Turn::kForwards);
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
