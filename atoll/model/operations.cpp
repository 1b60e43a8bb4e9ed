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
#include <optional>

#include "atoll/base/check.h"
#include "atoll/model/composite.h"
#include "atoll/model/kernels.h"
#include "atoll/model/matmul.h"
#include "atoll/model/operation_parts.h"
#include "atoll/model/page_tensor.h"

namespace atl::model {
namespace {

/// Its sizes, but for the last one.
std::vector<int64_t> with_width(const at::Tensor& x, int64_t width) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = width;
  return sizes;
}

/// What a product adds to its weight's gradient, if somebody wants it.
void add_to_gradient(AutogradContext* context, const at::Tensor& dy_MO, const at::Tensor& x_MI) {
  if (const at::Tensor target = gradient_target(context); target.defined()) {
    make_room_for(target);
    matmul(target, dy_MO.t(), x_MI, /*accumulates=*/true);
  }
}

/// Parameters are no inputs of the graph: their gradients go where `grad` points, if anywhere. Only
/// the embedding names its weight to autograd, so that everything behind it has a gradient.
void save(AutogradContext* context, const Weight& weight, variable_list tensors) {
  tensors.push_back(weight.value);
  context->save_for_backward(std::move(tensors));
  context->saved_data["grad"] = weight.grad;
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
    make_room_for(target);
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
    return product(x.reshape({-1, x.size(-1)}), matrix.t()).view(with_width(x, matrix.size(0)));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor dy_MO = gradients[0].reshape({-1, weight.size(0)});
    add_to_gradient(context, dy_MO, x.reshape({-1, weight.size(1)}));
    return {product(dy_MO, weight).view(x.sizes()), {}};
  }
};

/// A matrix as its file holds it has no gradient, and none of its products in FP32 is kept.
struct FrozenLinear : Function<FrozenLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const StoredMatrix& matrix) {
    context->saved_data["matrix"] = reinterpret_cast<int64_t>(&matrix);
    return product(x.reshape({-1, x.size(-1)}), widened(matrix).t())
        .view(with_width(x, matrix.num_outputs()));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto& matrix =
        *reinterpret_cast<const StoredMatrix*>(context->saved_data["matrix"].toInt());
    const at::Tensor& dy = gradients[0];
    return {product(dy.reshape({-1, dy.size(-1)}), widened(matrix))
                .view(with_width(dy, matrix.num_inputs())),
            {}};
  }
};

/// Undefined tensors cannot be a graph's inputs.
using MaybeTensor = std::optional<at::Tensor>;
MaybeTensor dense_if_any(const at::Tensor& x) {
  return x.defined() ? MaybeTensor(x.contiguous()) : std::nullopt;
}

/// What RMSNorm reads, which is x + delta, or x where there is none, and what it makes of it.
struct Normalised {
  at::Tensor sum, y, inverse_rms;
};
Normalised normalise(AutogradContext* context, const at::Tensor& x, const MaybeTensor& delta,
                     const Weight& weight, double epsilon) {
  const Rows rows = rows_of(x);
  const bool adds = delta.has_value();
  context->saved_data["adds"] = adds;
  context->set_materialize_grads(false);
  Normalised made{.sum = adds ? at::empty_like(x) : x,
                  .y = at::empty_like(x),
                  .inverse_rms = at::empty({rows.count}, at::kFloat)};
  of_type(x, [&]<typename T>(T) {
    rms_norm_forward<T>(rows, in<T>(x), adds ? in<T>(*delta) : nullptr, in(weight.value),
                        static_cast<float>(epsilon), adds ? out<T>(made.sum) : nullptr,
                        out<T>(made.y), out(made.inverse_rms));
  });
  return made;
}

/// Of x, of the delta if there was one, and of nothing else.
variable_list gradients_of(AutogradContext* context, const at::Tensor& dx, size_t num_inputs) {
  variable_list gradients(num_inputs);
  gradients[0] = dx;
  if (context->saved_data["adds"].toBool()) gradients[1] = dx;
  return gradients;
}

/// The gradient of what was normalised: `dsum`, if any, and what comes through the norm. `y`, if
/// any, is made again, where `dy` may be. `saved`: sum, inverse_rms, the norm's weight.
at::Tensor normalise_backward(const variable_list& saved, const at::Tensor& dweight,
                              const at::Tensor& dsum, const at::Tensor& dy, const at::Tensor& y) {
  const at::Tensor beside = dsum.defined() ? dsum.contiguous() : at::Tensor();
  const at::Tensor dx = at::empty_like(saved[0]);
  of_type(dy, [&]<typename T>(T) {
    rms_norm_backward<T>(rows_of(dy), in<T>(dy), beside.defined() ? in<T>(beside) : nullptr,
                         in<T>(saved[0]), in(saved[2]), in(saved[1]), out<T>(dx), out(dweight),
                         y.defined() ? out<T>(y) : nullptr);
  });
  return dx;
}

/// (x + delta, RMSNorm of it). Either gradient may be missing.
struct RmsNorm : Function<RmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const MaybeTensor& delta, const Weight& weight, double epsilon) {
    const Normalised made = normalise(context, x, delta, weight, epsilon);
    save(context, weight, {made.sum, made.inverse_rms});
    return {made.sum, made.y};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    at::Tensor dx = gradients[0];
    if (const at::Tensor& dy = gradients[1]; dy.defined()) {
      const variable_list saved = context->get_saved_variables();
      dx = normalise_backward(saved, gradient_target_like(context, saved[2]), gradients[0],
                              dy.contiguous(), {});
    }
    return gradients_of(context, dx, 4);
  }
};

/// RmsNorm and Linear, which keep no more than what they read: what is between them is made again
/// on the way back, in the pass through the norm.
struct RmsNormLinear : Function<RmsNormLinear> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const MaybeTensor& delta, const Weight& norm, double epsilon,
                               const Weight& weight) {
    const Normalised made = normalise(context, x, delta, norm, epsilon);
    const at::Tensor matrix = weight.factor();
    context->save_for_backward({made.sum, made.inverse_rms, norm.value, matrix});
    context->saved_data["grad"] = weight.grad;
    context->saved_data["norm_grad"] = norm.grad;
    return {made.sum, product(made.y.reshape({-1, matrix.size(1)}), matrix.t())
                          .view(with_width(x, matrix.size(0)))};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    at::Tensor dx = gradients[0];
    if (gradients[1].defined()) {
      const variable_list saved = context->get_saved_variables();
      const at::Tensor& matrix = saved[3];
      const at::Tensor dy_MO = gradients[1].reshape({-1, matrix.size(0)});
      const at::Tensor read_MC = product(dy_MO, matrix);  // First its gradient.
      const bool learns = gradient_target(context).defined();
      dx = normalise_backward(saved, gradient_target_like(context, saved[2], "norm_grad"),
                              gradients[0], read_MC, learns ? read_MC : at::Tensor());
      add_to_gradient(context, dy_MO, read_MC);
    }
    return gradients_of(context, dx, 5);
  }
};

struct SwiGlu : Function<SwiGlu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up) {
    const at::Tensor y = at::empty(with_width(gate_up, gate_up.size(-1) / 2), gate_up.options());
    of_type(y, [&]<typename T>(T) { swiglu_forward(rows_of(y), in<T>(gate_up), out<T>(y)); });
    context->save_for_backward({gate_up});
    return y;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    const at::Tensor dgate_up = at::empty_like(saved[0]);
    of_type(dy, [&]<typename T>(T) {
      swiglu_backward<T>(rows_of(dy), in<T>(dy), in<T>(saved[0]), out<T>(dgate_up), nullptr);
    });
    return {dgate_up};
  }
};

/// SwiGlu and Linear, which keep no more than what they read: what is between them is made again on
/// the way back, in the pass that makes its gradient.
struct SwiGluLinear : Function<SwiGluLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_up,
                            const Weight& weight) {
    const at::Tensor matrix = weight.factor();
    context->save_for_backward({gate_up, matrix});
    context->saved_data["grad"] = weight.grad;
    const at::Tensor active =
        at::empty({rows_of(gate_up).count, matrix.size(1)}, gate_up.options());
    of_type(active, [&]<typename T>(T) {
      swiglu_forward(rows_of(active), in<T>(gate_up), out<T>(active));
    });
    return product(active, matrix.t()).view(with_width(gate_up, matrix.size(0)));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gate_up = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor dy_MO = gradients[0].reshape({-1, weight.size(0)});
    const at::Tensor active = product(dy_MO, weight);  // First its gradient.
    const at::Tensor dgate_up = at::empty_like(gate_up);
    of_type(active, [&]<typename T>(T) {
      swiglu_backward(rows_of(active), in<T>(active), in<T>(gate_up), out<T>(dgate_up),
                      out<T>(active));
    });
    add_to_gradient(context, dy_MO, active);
    return {dgate_up, {}};
  }
};

at::Tensor with_bias(const Projection& projection, const at::Tensor& y) {
  const at::Tensor& bias = projection.bias.value;
  return bias.defined() ? y.add(bias.to(y.scalar_type())) : y;
}

/// For kernels that have no way back. LibTorch's own ones cut a tensor into parts for its threads,
/// and at the end of each the bits are others: a row's would hang on those that are read beside it.
bool is_plain(const at::Tensor& x) { return x.is_cpu() && is_fp32(x) && !has_gradient(x); }

template <typename Kernel>
at::Tensor made_by(const Kernel& kernel, const at::Tensor& x, int64_t width) {
  const at::Tensor y = at::empty(with_width(x, width), x.options());
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
  const at::Tensor y = at::empty(with_width(x, weight.num_outputs()), x.options());
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
  return with_bias(projection, linear(projection.weight, x));
}

at::Tensor layer_norm(const Projection& norm, const at::Tensor& x, double epsilon) {
  const auto fitting = [&](const at::Tensor& weight) {  // The CPU's takes FP32 weights to any x.
    return weight.defined() && !x.is_cpu() ? weight.to(x.scalar_type()) : weight;
  };
  return at::layer_norm(x, {x.size(-1)}, fitting(norm.weight.value), fitting(norm.bias.value),
                        epsilon);
}

at::Tensor rms_norm(const Weight& weight, const at::Tensor& x, double epsilon) {
  return add_rms_norm(weight, x, {}, epsilon).second;
}

std::pair<at::Tensor, at::Tensor> add_rms_norm(const Weight& weight, const at::Tensor& x,
                                               const at::Tensor& delta, double epsilon) {
  if (!on_cpu(x)) {
    const at::Tensor sum = delta.defined() ? x.add(delta) : x;
    return {sum, composite::rms_norm(sum, weight.value, epsilon)};
  }
  const variable_list both = RmsNorm::apply(x.contiguous(), dense_if_any(delta), weight, epsilon);
  return {both[0], both[1]};
}

std::pair<at::Tensor, at::Tensor> project_rms_norm(const Projection& projection, const Weight& norm,
                                                   const at::Tensor& x, const at::Tensor& delta,
                                                   double epsilon) {
  const Weight& weight = projection.weight;
  const bool learns = has_gradient(x) || (delta.defined() && has_gradient(delta));
  if (!on_cpu(x) || !learns || weight.stored) {
    const auto [sum, y] = add_rms_norm(norm, x, delta, epsilon);
    return {sum, project(projection, y)};
  }
  const variable_list both =
      RmsNormLinear::apply(x.contiguous(), dense_if_any(delta), norm, epsilon, weight);
  return {both[0], with_bias(projection, both[1])};
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  return on_cpu(gate_up) ? SwiGlu::apply(gate_up.contiguous()) : composite::swiglu(gate_up);
}

at::Tensor project_swiglu(const Projection& projection, const at::Tensor& gate_up) {
  const bool has_kernel = on_cpu(gate_up) && has_gradient(gate_up) && !projection.weight.stored;
  if (!has_kernel) return project(projection, swiglu(gate_up));
  return with_bias(projection, SwiGluLinear::apply(gate_up.contiguous(), projection.weight));
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

}  // namespace atl::model
