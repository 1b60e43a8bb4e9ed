#include "atoll/model/parameters.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::model {

Parameters::Parameters(const weights::ModelConfig& config, at::Device device, Purpose purpose)
    : specs_(weights::parameter_specs(config)) {
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  const int64_t size = specs_.back().offset + specs_.back().size;
  values_P_ = at::zeros({size}, options);
  if (purpose == Purpose::kTraining) gradients_P_ = at::zeros({size}, options);
}

at::Tensor Parameters::view(std::string_view name) const {
  const auto spec = std::ranges::find(specs_, name, &weights::ParameterSpec::name);
  ATOLL_CHECK(spec != specs_.end(), fmt::format("no parameter '{}'", name));
  return values_P_.narrow(0, spec->offset, spec->size).view(spec->shape);
}

Weight Parameters::joined(const weights::ParameterSpec& first,
                          const weights::ParameterSpec& last) const {
  const int64_t size = last.offset + last.size - first.offset;
  std::vector<int64_t> shape = first.shape;
  if (&first != &last) {
    ATOLL_CHECK(shape.size() == last.shape.size() && !first.inputs_first);
    ATOLL_CHECK(shape.size() == 1 || shape.back() == last.shape.back());
    shape[0] = shape.size() == 2 ? size / shape[1] : size;
  }
  const auto cut = [&](const at::Tensor& flat) {
    const at::Tensor part = flat.narrow(0, first.offset, size).view(shape);
    return (first.inputs_first ? part.t() : part).detach();
  };
  Weight weight{.value = cut(values_P_), .grad = {}};
  if (trains()) {
    weight.grad = cut(gradients_P_);
    weight.value.set_requires_grad(true);
    weight.value.mutable_grad() = weight.grad;
  }
  return weight;
}

Projection Parameters::projection(weights::Role role, int64_t layer) const {
  const auto find = [&](bool is_bias) -> Weight {
    const weights::ParameterSpec* first = nullptr;
    const weights::ParameterSpec* last = nullptr;
    for (const weights::ParameterSpec& spec : specs_) {
      if (spec.role != role || spec.layer != layer || spec.is_bias() != is_bias) continue;
      ATOLL_CHECK(last == nullptr || last->offset + last->size == spec.offset);
      if (first == nullptr) first = &spec;
      last = &spec;
    }
    return first == nullptr ? Weight{} : joined(*first, *last);
  };
  return {.weight = find(false), .bias = find(true)};
}

}  // namespace atl::model
