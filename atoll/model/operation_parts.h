#pragma once
// What the operations of operations.cpp and head_operations.cpp are made with. Only for those.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/BFloat16.h>
#include <torch/csrc/autograd/custom_function.h>

#include "atoll/model/kernels.h"

namespace atl::model {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

inline bool is_fp32(const at::Tensor& x) { return x.scalar_type() == at::kFloat; }

inline bool on_cpu(const at::Tensor& x) {
  return x.is_cpu() && (is_fp32(x) || x.scalar_type() == at::kBFloat16);
}

inline Rows rows_of(const at::Tensor& x) { return {x.numel() / x.size(-1), x.size(-1)}; }

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

/// Undefined where nobody wants it.
inline at::Tensor gradient_target(AutogradContext* context, const char* name = "grad") {
  return context->saved_data[name].toTensor();
}

/// For kernels that always make one: where nobody wants it, it goes nowhere.
inline at::Tensor gradient_target_like(AutogradContext* context, const at::Tensor& weight,
                                       const char* name = "grad") {
  const at::Tensor target = gradient_target(context, name);
  return target.defined() ? target : at::zeros_like(weight);
}

}  // namespace atl::model
