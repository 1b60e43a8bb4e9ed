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

bool is_fp32(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

bool on_cpu(const at::Tensor& x) {
  return x.is_cpu() && (is_fp32(x) || x.scalar_type() == at::kBFloat16);
}

Rows rows_of(const at::Tensor& x) { return {x.numel() / x.size(-1), x.size(-1)}; }

template <typename T = float>
const T* in(const at::Tensor& x) {
  return x.const_data_ptr<T>();
}
template <typename T = float>
T* out(const at::Tensor& x) {
  return x.mutable_data_ptr<T>();
}

/// Calls `kernel` with a zero of the type that x has.
template <typename Kernel>
void of_type(const at::Tensor& x, const Kernel& kernel) {
  if (is_fp32(x)) {
    kernel(float{});
  } else {
    kernel(c10::BFloat16{});
  }
}

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
                            const at::Tensor& tokens_BT, const Weight& weight) {
    context->save_for_backward({tokens_BT});
    context->saved_data["grad"] = weight.grad.defined() ? weight.grad : weight.value;
    return weight.factor()
        .index_select(0, tokens_BT.reshape(-1))
        .view({tokens_BT.size(0), tokens_BT.size(1), value.size(1)});
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor tokens = context->get_saved_variables()[0].reshape(-1);
    const at::Tensor dy = gradients[0].contiguous();
    at::Tensor target = gradient_target(context);
    if (on_cpu(dy)) {
      of_type(dy, [&]<typename T>(T) {
        embedding_backward(rows_of(dy), tokens.const_data_ptr<int64_t>(), in<T>(dy), out(target));
      });
    } else {
      target.index_add_(0, tokens, dy.view({-1, dy.size(-1)}).to(target.scalar_type()));
    }
    return {{}, {}, {}};
  }
};

struct Linear : Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Weight& weight) {
    const at::Tensor matrix = weight.factor();
    context->save_for_backward({x, matrix});
    context->saved_data["grad"] = weight.grad;
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = matrix.size(0);
    return product(x.reshape({-1, x.size(-1)}), matrix.t()).view(shape);
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
  const at::Tensor inverse_rms = at::empty({rows.count}, at::kFloat);
  const bool adds = delta.defined();
  of_type(x, [&]<typename T>(T) {
    rms_norm_forward<T>(rows, in<T>(x), adds ? in<T>(delta) : nullptr, in(weight.value),
                        static_cast<float>(epsilon), adds ? out<T>(sum) : nullptr, out<T>(y),
                        out(inverse_rms));
  });
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
  const at::Tensor dweight = gradient_target_like(context, saved[2]);
  of_type(dy, [&]<typename T>(T) {
    rms_norm_backward<T>(rows_of(dy), in<T>(dy), beside.defined() ? in<T>(beside) : nullptr,
                         in<T>(saved[0]), in(saved[2]), in(saved[1]), out<T>(dx), out(dweight));
  });
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
    of_type(y, [&]<typename T>(T) { swiglu_forward(rows_of(y), in<T>(gate_up), out<T>(y)); });
    context->save_for_backward({gate_up});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dgate_up = at::empty_like(saved[0]);
    of_type(dy, [&]<typename T>(T) {
      swiglu_backward(rows_of(dy), in<T>(dy), in<T>(saved[0]), out<T>(dgate_up));
    });
    return {dgate_up};
  }
};

/// For kernels that have no way back. LibTorch's own ones cut a tensor into parts for its threads,
/// and at the end of each the bits are others: a row's would hang on those that are read beside it.
bool is_plain(const at::Tensor& x) { return x.is_cpu() && is_fp32(x) && !has_gradient(x); }

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
  return Embed::apply(weight.value, tokens_BT, weight);
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
  if (!weight.stored) return matmul(out_MO, x_MI, weight.factor().t());
  const at::Tensor x = x_MI.contiguous();
  ATOLL_CHECK(x.size(-1) == weight.stored->num_inputs());
  weight.stored->multiply(rows_of(x).count, in(x), out(out_MO));
}

at::Tensor project(const Projection& projection, const at::Tensor& x) {
  const at::Tensor y = linear(projection.weight, x);
  const at::Tensor& bias = projection.bias.value;
  return bias.defined() ? y.add(bias.to(y.scalar_type())) : y;
}

at::Tensor layer_norm(const Projection& norm, const at::Tensor& x, double epsilon) {
  const auto fitting = [&](const at::Tensor& weight) {  // The CPU's takes FP32 weights to any x.
    return weight.defined() && !x.is_cpu() ? weight.to(x.scalar_type()) : weight;
  };
  return at::layer_norm(x, {x.size(-1)}, fitting(norm.weight.value), fitting(norm.bias.value),
                        epsilon);
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
