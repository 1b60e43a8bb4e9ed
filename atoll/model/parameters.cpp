#include "atoll/model/parameters.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "atoll/base/check.h"
#include "atoll/codec/float_bits.h"
#include "atoll/model/page_tensor.h"
#include "atoll/weights/served_type.h"

namespace atl::model {

using weights::ParameterSpec;
using weights::StoredTensor;

namespace {

int64_t num_finite(const StoredTensor& tensor) {
  std::atomic<int64_t> sum = 0;
  at::parallel_for(0, tensor.num_rows, std::max<int64_t>(1, 32'768 / tensor.width),
                   [&](int64_t begin, int64_t end) {
                     std::vector<float> row(static_cast<size_t>(tensor.width));
                     for (int64_t i = begin; i < end; ++i) {
                       tensor.read(i, 0, row);
                       sum += std::ranges::count_if(row, codec::is_finite);
                     }
                   });
  return sum;
}

/// Each in the order of the flat buffer.
template <typename Parts>
Parts by_use(std::span<const ParameterSpec> specs) {
  Parts parts;
  for (const ParameterSpec& spec : specs) {
    for (ParameterSpec& part : spec.parts()) {
      auto& those = parts[{part.role, part.layer, part.expert, part.is_bias()}];
      ATOLL_CHECK(those.empty() || those.back().offset + those.back().size == part.offset);
      those.push_back(std::move(part));
    }
  }
  return parts;
}

}  // namespace

Parameters::Parameters(const weights::ModelConfig& config, at::Device device, Purpose purpose)
    : Parameters(weights::parameter_specs(config), device, purpose) {}

Parameters::Parameters(std::vector<ParameterSpec> specs, at::Device device, Purpose purpose)
    : specs_(std::move(specs)), parts_(by_use<decltype(parts_)>(specs_)) {
  const int64_t size = specs_.empty() ? 0 : specs_.back().offset + specs_.back().size;
  const auto zeros = [&](at::ScalarType type) {
    return device.is_cpu() ? page_zeros(size, type)
                           : at::zeros({size}, at::TensorOptions().dtype(type).device(device));
  };
  values_P_ = zeros(at::kFloat);
  if (purpose != Purpose::kInference) gradients_P_ = zeros(at::kFloat);
  if (purpose == Purpose::kBf16Training) narrow_P_ = zeros(at::kBFloat16);
}

Parameters::Parameters(const weights::ModelConfig& config,
                       std::shared_ptr<const weights::ModelFiles> files)
    : specs_(weights::parameter_specs(config)),
      parts_(by_use<decltype(parts_)>(specs_)),
      kv_type_(weights::keeps_narrow_kv(config, files->tensors(), {.kv = files->kv_type()})
                   ? at::kBFloat16
                   : at::kFloat),
      files_(std::move(files)) {}

at::Device Parameters::device() const {
  return values_P_.defined() ? values_P_.device() : at::Device(at::kCPU);
}

at::Tensor Parameters::view(std::string_view name) const {
  const auto spec = std::ranges::find(specs_, name, &ParameterSpec::name);
  ATOLL_CHECK(spec != specs_.end(), fmt::format("no parameter '{}'", name));
  return values_P_.narrow(0, spec->offset, spec->size).view(spec->shape);
}

void Parameters::narrow() const {
  if (narrow_P_.defined()) narrow(0, narrow_P_.numel());
}

void Parameters::narrow(int64_t begin, int64_t end) const {
  if (!narrow_P_.defined()) return;
  const at::NoGradGuard no_grad;
  // A pass under way keeps views of them for its way back, where they are rounded once more: for
  // autograd they do not change.
  narrow_P_.variable_data().slice(0, begin, end).copy_(values_P_.slice(0, begin, end));
}

void Parameters::forget_narrow(int64_t begin, int64_t end) const {
  if (narrow_P_.defined()) forget(narrow_P_.slice(0, begin, end));
}

Weight Parameters::flat(Specs specs) const {
  const ParameterSpec& first = specs.front();
  const int64_t size = specs.back().offset + specs.back().size - first.offset;
  std::vector<int64_t> shape = first.shape;
  if (specs.size() > 1) shape[0] = shape.size() == 2 ? size / shape[1] : size;
  const auto cut = [&](const at::Tensor& flat) {
    const at::Tensor part = flat.narrow(0, first.offset, size).view(shape);
    return (first.inputs_first ? part.t() : part).detach();
  };
  Weight weight{.value = cut(values_P_), .grad = {}, .stored = {}};
  if (trains()) {
    weight.grad = cut(gradients_P_);
    weight.value.set_requires_grad(true);
    weight.value.mutable_grad() = weight.grad;
  }
  if (narrow_P_.defined() && shape.size() == 2) weight.narrow = cut(narrow_P_);
  return weight;
}

StoredTensor Parameters::stored(const ParameterSpec& part) const {
  if (files_ != nullptr) {
    // That in which it lies.
    const auto spec = std::ranges::upper_bound(specs_, part.offset, {}, &ParameterSpec::offset) - 1;
    const StoredTensor& tensor = files_->tensors()[static_cast<size_t>(spec - specs_.begin())];
    return tensor.part((part.offset - spec->offset) / part.size, spec->size / part.size);
  }
  const std::span values(values_P_.const_data_ptr<float>() + part.offset,
                         static_cast<size_t>(part.size));
  return weights::stored_tensor(codec::GgmlType::kF32, std::as_bytes(values), part);
}

at::Tensor Parameters::widened(Specs specs) const {
  const int64_t size = specs.back().offset + specs.back().size - specs.front().offset;
  const at::Tensor values = at::empty({size}, at::kFloat);
  float* next = values.mutable_data_ptr<float>();
  for (const ParameterSpec& spec : specs) {
    stored(spec).read_all(spec.inputs_first, {next, static_cast<size_t>(spec.size)});
    next += spec.size;
  }
  return values;
}

Weight Parameters::joined(Specs specs) const {
  const ParameterSpec& first = specs.front();
  for (const ParameterSpec& spec : specs) {
    ATOLL_CHECK(&spec == &first ||
                (!first.inputs_first && spec.shape.size() == first.shape.size()));
    ATOLL_CHECK(spec.shape.size() == 1 || spec.shape.back() == first.shape.back());
  }
  Weight weight = files_ == nullptr ? flat(specs) : Weight{};
  if (trains() || !device().is_cpu()) return weight;
  if (stored(first).bytes.empty()) return {};  // Of a part of the model that is not here.
  if (first.shape.size() == 1) {
    if (files_ != nullptr) weight.value = widened(specs);
    return weight;
  }
  std::vector<StoredTensor> tensors;
  for (const ParameterSpec& spec : specs) tensors.push_back(stored(spec));
  weight.stored = std::make_shared<const StoredMatrix>(std::move(tensors));
  return weight;
}

Projection Parameters::projection(weights::Role role, int64_t layer, int64_t expert) const {
  const auto find = [&](bool is_bias) -> Weight {
    const auto found = parts_.find({role, layer, expert, is_bias});
    return found == parts_.end() ? Weight{} : joined(found->second);
  };
  return {.weight = find(false), .bias = find(true)};
}

std::vector<std::string> Parameters::not_finite() const {
  std::vector<std::string> found;
  for (const ParameterSpec& spec : specs_) {
    const int64_t count = device().is_cpu() ? num_finite(stored(spec))
                                            : view(spec.name).isfinite().sum().item<int64_t>();
    if (count == spec.size) continue;
    found.push_back(fmt::format("tensor '{}' has {} of {} values that are not finite", spec.name,
                                spec.size - count, spec.size));
  }
  return found;
}

}  // namespace atl::model
