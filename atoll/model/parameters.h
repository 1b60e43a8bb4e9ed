#pragma once
// The parameters of one model, in one of two ways. For training (and on devices): all in one flat
// FP32 buffer, and all gradients in another: an optimiser step, an outer step, a digest or a
// transfer is one pass over memory; a tensor is a view; writing values_P() changes the model. Those
// who compute in BF16 have a copy of the values in it, which narrow() renews. For
// those who evaluate and generate on the CPU: as the model's files hold them, memory-mapped.
// Owned by one thread.
//
// Shapes: P = all parameters, in the order of parameter_specs().
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "atoll/model/products.h"
#include "atoll/weights/config.h"
#include "atoll/weights/model_files.h"

namespace atl::model {

enum class Purpose {
  kTraining,      // Gradients are kept.
  kBf16Training,  // So they are, in FP32 like the values; activations and products are BF16.
  kInference,     // No gradient buffer: half the memory.
};

/// A parameter as the model's operations take it. `value` is a leaf of autograd whose .grad is
/// `grad`, a view of the flat gradients: gradients are added in place. For inference `grad` is
/// undefined and, on the CPU, a matrix is `stored`, and has a `value` only where the flat buffer
/// has. A matrix of a model that computes in BF16 has a `narrow` copy of its value.
struct Weight {
  at::Tensor value;
  at::Tensor grad;
  std::shared_ptr<const StoredMatrix> stored;
  at::Tensor narrow{};

  bool exists() const { return value.defined() || stored != nullptr; }
  /// What products and the embedding read; without autograd.
  at::Tensor factor() const { return narrow.defined() ? narrow : value.detach(); }
  int64_t num_outputs() const { return stored ? stored->num_outputs() : value.size(0); }
};

/// x W^T + b; without a bias it does not exist.
struct Projection {
  Weight weight;
  Weight bias;
};

class Parameters {
 public:
  Parameters(const weights::ModelConfig& config, at::Device device, Purpose purpose);
  /// As they lie in the files, on the CPU and for inference.
  Parameters(const weights::ModelConfig& config, std::shared_ptr<const weights::ModelFiles> files);
  /// Of something else than a model (adapter.h): in one flat buffer, of zeros.
  Parameters(std::vector<weights::ParameterSpec> specs, at::Device device, Purpose purpose);

  at::Device device() const;
  /// Undefined where they are as stored.
  const at::Tensor& values_P() const { return values_P_; }
  /// Undefined for inference. Backward passes add to it; zero it between steps.
  const at::Tensor& gradients_P() const { return gradients_P_; }
  const std::vector<weights::ParameterSpec>& specs() const { return specs_; }
  /// The parameter's values, as a view without autograd. Not where they are as stored.
  at::Tensor view(std::string_view name) const;
  /// The weights of a role in a layer, and of one of its experts, as one matrix (outputs, inputs)
  /// or vector, and its biases as one; they do not exist where the model has none.
  Projection projection(weights::Role role, int64_t layer = -1, int64_t expert = -1) const;
  bool trains() const { return gradients_P_.defined(); }
  /// Rounds the values for those who compute in BF16, once for all uses in a step: whoever reads
  /// the model calls it after values_P() has changed.
  void narrow() const;
  /// Of [begin, end) alone, and
  void narrow(int64_t begin, int64_t end) const;
  /// until that is called again the rounded ones are read no more (page_tensor.h). On the CPU.
  void forget_narrow(int64_t begin, int64_t end) const;
  /// In which keys and values are kept: FP32 or BF16 (weights::keeps_narrow_kv).
  at::ScalarType kv_type() const { return kv_type_; }
  /// A sentence for each tensor with values that are not finite.
  std::vector<std::string> not_finite() const;

 private:
  /// Parts of parameters (ParameterSpec::parts()) that lie one behind the other.
  using Specs = std::span<const weights::ParameterSpec>;
  /// Those of one role, which have the same inputs, as one.
  Weight joined(Specs specs) const;
  Weight flat(Specs specs) const;
  at::Tensor widened(Specs specs) const;
  /// As it lies in its file, or in the flat buffer.
  weights::StoredTensor stored(const weights::ParameterSpec& part) const;

  /// Role, layer, expert, whether it is a bias.
  using Use = std::tuple<weights::Role, int64_t, int64_t, bool>;
  std::vector<weights::ParameterSpec> specs_;
  std::map<Use, std::vector<weights::ParameterSpec>> parts_;
  at::ScalarType kv_type_ = at::kFloat;
  at::Tensor values_P_;
  at::Tensor gradients_P_;
  at::Tensor narrow_P_;
  std::shared_ptr<const weights::ModelFiles> files_;
};

}  // namespace atl::model
