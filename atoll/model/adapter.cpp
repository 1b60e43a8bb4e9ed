#include "atoll/model/adapter.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/IListRef_inl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/random.h"
#include "atoll/model/operations.h"

namespace atl::model {

using weights::ParameterSpec;

Adapter::Adapter(const weights::ModelConfig& model, weights::AdapterConfig config,
                 LayerRange layers, at::Device device, Purpose purpose)
    : config_(std::move(config)),
      layers_(layers),
      parameters_(weights::adapter_specs(model, config_, layers.begin, layers.end), device,
                  purpose) {
  if (config_.is_prompt()) return;
  const auto& specs = parameters_.specs();
  size_t next = 0;
  for (const weights::AdapterModule& module : weights::adapted_modules(model, config_)) {
    if (module.layer < layers.begin || module.layer >= layers.end) continue;
    parts_[{module.layer, module.role}].push_back({.first_output = module.first_output,
                                                   .a_RK = weight_of(specs[next]),
                                                   .b_OR = weight_of(specs[next + 1])});
    next += 2;
  }
}

Weight Adapter::weight_of(const ParameterSpec& spec) const {
  Weight weight{.value = parameters_.view(spec.name).detach(), .grad = {}, .stored = {}};
  weight.value.set_requires_grad(true);
  if (!weight.value.is_cpu()) return weight;
  const std::span values(weight.value.const_data_ptr<float>(), static_cast<size_t>(spec.size));
  weight.stored = std::make_shared<const StoredMatrix>(
      std::vector{weights::stored_tensor(codec::GgmlType::kF32, std::as_bytes(values), spec)});
  return weight;
}

void Adapter::initialise(uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (const ParameterSpec& spec : parameters_.specs()) {
    const bool is_second = spec.name.ends_with("lora_B.weight");
    const at::Tensor values = at::empty({spec.size}, at::kFloat);
    auto* const data = values.mutable_data_ptr<float>();
    const uint64_t stream = random_stream(spec.name);
    const double bound = 1 / std::sqrt(static_cast<double>(spec.shape[1]));
    for (int64_t i = 0; i < spec.size; ++i) {
      const auto index = static_cast<uint64_t>(i);
      const double drawn = config_.is_prompt()
                               ? 0.02 * random_normal(seed, stream, index)
                               : bound * (2 * random_uniform(seed, stream, index) - 1);
      data[i] = is_second ? 0 : static_cast<float>(drawn);
    }
    parameters_.view(spec.name).copy_(values.view(spec.shape));
  }
}

std::span<const Adapter::Part> Adapter::parts(ProjectionPlace place) const {
  const auto found = parts_.find(place);
  if (found == parts_.end()) return {};
  return found->second;
}

std::pair<int64_t, int64_t> Adapter::values_of(LayerRange layers) const {
  int64_t first = 0;
  int64_t count = 0;
  for (const ParameterSpec& spec : parameters_.specs()) {
    if (spec.layer < layers.begin) first = spec.offset + spec.size;
    if (spec.layer >= layers.begin && spec.layer < layers.end) count += spec.size;
  }
  return {first, count};
}

std::vector<at::Tensor> Adapter::leaves(int64_t layer) const {
  std::vector<std::pair<int64_t, at::Tensor>> found;  // By their places in memory.
  for (const auto& [place, parts] : parts_) {
    if (place.layer != layer) continue;
    for (const Part& part : parts) {
      for (const at::Tensor& value : {part.a_RK.value, part.b_OR.value}) {
        found.emplace_back(value.storage_offset(), value);
      }
    }
  }
  std::ranges::sort(found, {}, [](const auto& leaf) { return leaf.first; });
  std::vector<at::Tensor> leaves;
  for (auto& [offset, value] : found) leaves.push_back(std::move(value));
  return leaves;
}

AdaptedRows adapted_rows(std::span<const CachedRow> rows) {
  AdaptedRows adapted;
  int64_t begin = 0;
  for (const CachedRow& row : rows) {
    if (row.adapter != nullptr) {
      const bool goes_on = !adapted.empty() && adapted.back().adapter == row.adapter &&
                           adapted.back().begin + adapted.back().count == begin;
      if (goes_on) {
        adapted.back().count += row.num_tokens;
      } else {
        adapted.push_back({row.adapter, begin, row.num_tokens});
      }
    }
    begin += row.num_tokens;
  }
  return adapted;
}

AdaptedRows cut(const AdaptedRows& rows, int64_t begin, int64_t count) {
  AdaptedRows inside;
  for (const RowsOfAdapter& each : rows) {
    const int64_t first = std::max(each.begin, begin);
    const int64_t last = std::min(each.begin + each.count, begin + count);
    if (first < last) inside.push_back({each.adapter, first - begin, last - first});
  }
  return inside;
}

namespace {

/// In one piece, for autograd.
at::Tensor with_parts(const at::Tensor& y_MO, const at::Tensor& x_MK,
                      std::span<const Adapter::Part> parts, double scale) {
  std::vector<at::Tensor> added;
  int64_t end = 0;
  const auto fill_up_to = [&](int64_t output) {
    if (output > end) added.push_back(at::zeros({y_MO.size(0), output - end}, y_MO.options()));
    end = output;
  };
  for (const Adapter::Part& part : parts) {
    fill_up_to(part.first_output);
    added.push_back(at::mm(at::mm(x_MK, part.a_RK.value.t()), part.b_OR.value.t()) * scale);
    end += part.b_OR.value.size(0);
  }
  fill_up_to(y_MO.size(1));
  return y_MO + (added.size() == 1 ? added.front() : at::cat(added, 1));
}

/// In place, each row by itself.
void add_parts(const at::Tensor& y_MO, const at::Tensor& x_MK, std::span<const Adapter::Part> parts,
               double scale) {
  for (const Adapter::Part& part : parts) {
    const auto product = [](const Weight& weight, const at::Tensor& x) {
      const at::Tensor out = at::empty({x.size(0), weight.num_outputs()}, x.options());
      linear_into(out, weight, x);
      return out;
    };
    const at::Tensor inner_MR = product(part.a_RK, x_MK).mul_(scale);
    y_MO.narrow(1, part.first_output, part.b_OR.num_outputs()).add_(product(part.b_OR, inner_MR));
  }
}

}  // namespace

at::Tensor with_adapters(const at::Tensor& y, const at::Tensor& x, ProjectionPlace place,
                         const AdaptedRows& rows) {
  if (rows.empty()) return y;
  const at::Tensor y_MO = y.flatten(0, -2);
  const at::Tensor x_MK = x.flatten(0, -2);
  if (has_gradient(x)) {
    ATOLL_CHECK(rows.size() == 1 && rows[0].count == y_MO.size(0), "one adapter for all rows");
    const auto parts = rows[0].adapter->parts(place);
    if (parts.empty()) return y;
    return with_parts(y_MO, x_MK, parts, rows[0].adapter->scale()).view(y.sizes());
  }
  for (const RowsOfAdapter& each : rows) {
    const auto parts = each.adapter->parts(place);
    if (parts.empty()) continue;
    add_parts(y_MO.narrow(0, each.begin, each.count), x_MK.narrow(0, each.begin, each.count), parts,
              each.adapter->scale());
  }
  return y;
}

}  // namespace atl::model
