#pragma once
// All parameters of one model in one flat FP32 buffer, and all gradients in another: an optimiser
// step, an outer step, a digest or a transfer is one pass over memory. A tensor is a view; writing
// values_P() changes the model. Owned by one thread.
//
// Shapes: P = all parameters, in the order of parameter_specs().
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::model {

enum class Purpose {
  kTraining,   // Gradients are kept.
  kInference,  // No gradient buffer: half the memory.
};

/// A parameter as the model's operations take it. `value` is a leaf of autograd whose .grad is
/// `grad`, a view of the flat gradients (undefined for inference): gradients are added in place.
struct Weight {
  at::Tensor value;
  at::Tensor grad;
};

/// x W^T + b; without a bias its value is undefined.
struct Projection {
  Weight weight;
  Weight bias;
};

class Parameters {
 public:
  Parameters(const weights::ModelConfig& config, at::Device device, Purpose purpose);
  const at::Tensor& values_P() const { return values_P_; }
  /// Undefined for inference. Backward passes add to it; zero it between steps.
  const at::Tensor& gradients_P() const { return gradients_P_; }
  const std::vector<weights::ParameterSpec>& specs() const { return specs_; }
  /// The parameter's values, as a view without autograd.
  at::Tensor view(std::string_view name) const;
  /// `first` and the parameters that follow it up to `last`, which have the same inputs, as one
  /// matrix (outputs, inputs); or as one vector.
  Weight weight(std::string_view first, std::string_view last) const;
  Weight weight(std::string_view name) const { return weight(name, name); }
  /// The ".weight"s from `first` to `last`, and the ".bias"es where it has them.
  Projection projection(const std::string& first, const std::string& last, bool has_bias) const;
  bool trains() const { return gradients_P_.defined(); }

 private:
  const weights::ParameterSpec& find(std::string_view name) const;

  std::vector<weights::ParameterSpec> specs_;
  at::Tensor values_P_;
  at::Tensor gradients_P_;
};

}  // namespace atl::model
