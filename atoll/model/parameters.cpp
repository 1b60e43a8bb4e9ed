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

const weights::ParameterSpec& Parameters::find(std::string_view name) const {
  const auto found = std::ranges::find(specs_, name, &weights::ParameterSpec::name);
  ATOLL_CHECK(found != specs_.end(), fmt::format("no parameter '{}'", name));
  return *found;
}

at::Tensor Parameters::view(std::string_view name) const {
  const weights::ParameterSpec& spec = find(name);
  return values_P_.narrow(0, spec.offset, spec.size).view(spec.shape);
}

Weight Parameters::weight(std::string_view first, std::string_view last) const {
  const weights::ParameterSpec& begin = find(first);
  const weights::ParameterSpec& end = find(last);
  const int64_t size = end.offset + end.size - begin.offset;
  std::vector<int64_t> shape = begin.shape;
  shape[0] = shape.size() == 2 ? size / shape[1] : size;
  ATOLL_CHECK(shape.size() == end.shape.size());
  ATOLL_CHECK(shape.size() == 1 || shape.back() == end.shape.back());
  const auto cut = [&](const at::Tensor& flat) {
    return flat.narrow(0, begin.offset, size).view(shape).detach();
  };
  Weight weight{.value = cut(values_P_), .grad = {}};
  if (trains()) {
    weight.grad = cut(gradients_P_);
    weight.value.set_requires_grad(true);
    weight.value.mutable_grad() = weight.grad;
  }
  return weight;
}

Projection Parameters::projection(const std::string& first, const std::string& last,
                                  bool has_bias) const {
  return {weight(first + ".weight", last + ".weight"),
          has_bias ? weight(first + ".bias", last + ".bias") : Weight{}};
}

}  // namespace atl::model
