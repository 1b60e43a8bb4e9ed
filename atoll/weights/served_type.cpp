#include "atoll/weights/served_type.h"

#include <algorithm>
#include <array>
#include <utility>

#include "atoll/codec/ggml_quantize.h"
#include "atoll/weights/model_manifest.h"
#include "atoll/weights/shared_work.h"

namespace atl::weights {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"auto", "bf16", "int8", "int4"};

codec::GgmlType type_of(ServedType type) {
  return type == ServedType::kBf16   ? codec::GgmlType::kBF16
         : type == ServedType::kInt8 ? codec::GgmlType::kQ8_0
                                     : codec::GgmlType::kQ4_0;
}

/// A row for each output, experts one behind the other.
Bytes converted(const StoredTensor& tensor, const StoredTensor& served, const ParameterSpec& spec) {
  Bytes bytes;
  bytes.reserve(num_bytes(served));
  const auto add = [&](std::span<const float> values) {
    const Bytes blocks = codec::quantize(served.type, values);
    bytes.insert(bytes.end(), blocks.begin(), blocks.end());
  };
  if (!tensor.inputs_first) {
    std::vector<float> row(static_cast<size_t>(tensor.width));
    for (int64_t i = 0; i < tensor.num_rows; ++i) {
      tensor.read(i, 0, row);
      add(row);
    }
    return bytes;
  }
  const std::vector<ParameterSpec> parts = spec.parts();
  std::vector<float> matrix(static_cast<size_t>(parts.front().size));
  for (int64_t i = 0; i < std::ssize(parts); ++i) {
    tensor.part(i, std::ssize(parts)).read_all(/*has_inputs_first=*/false, matrix);
    add(matrix);
  }
  return bytes;
}

}  // namespace

std::span<const std::string_view> names_of(ServedType) { return kNames; }

std::optional<ServedType> served_type(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<ServedType>(found - kNames.begin());
}

StoredTensor as_served(const StoredTensor& tensor, const ParameterSpec& spec, ServedType type) {
  StoredTensor served = tensor;
  served.bytes = {};
  const bool is_matrix =
      spec.layer >= 0 && spec.shape.size() > 1 && !spec.is_bias() && spec.role != Role::kRouter;
  if (type == ServedType::kAuto || !is_matrix) return served;
  served.type = type_of(type);
  if (tensor.inputs_first) served.width = spec.shape[spec.shape.size() - 2];
  served.num_rows = spec.size / served.width;
  served.order = {};
  served.inputs_first = false;
  const auto block = static_cast<int64_t>(codec::ggml_block(served.type).num_values);
  const bool is_better = served.width % block == 0 && num_bytes(served) < num_bytes(tensor);
  if (is_better) return served;
  served = tensor;
  served.bytes = {};
  return served;
}

std::string digest_as_served(const std::string& digest, const ModelConfig& config,
                             const std::vector<StoredTensor>& tensors, ServedType type) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (as_served(tensors.at(i), specs[i], type).type == tensors[i].type) continue;
    return digest + "+" + std::string(kNames.at(static_cast<size_t>(type)));
  }
  return digest;
}

bool keeps_narrow_kv(const ModelConfig& config, std::span<const StoredTensor> tensors,
                     ServedType type) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].role != Role::kQueryKeyValue || specs[i].is_bias()) continue;
    if (as_served(tensors[i], specs[i], type).type != codec::GgmlType::kF32) return true;
  }
  return false;
}

std::shared_ptr<const ModelFiles> as_served(const ModelConfig& config,
                                            std::shared_ptr<const ModelFiles> files,
                                            ServedType type, int64_t begin, int64_t end,
                                            int num_threads) {
  if (type == ServedType::kAuto) return files;
  struct Held {
    std::shared_ptr<const ModelFiles> files;
    std::vector<Bytes> converted;
  };
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  const auto held = std::make_shared<Held>();
  held->converted.resize(specs.size());
  std::vector<StoredTensor> tensors = files->tensors();
  share_work(specs.size(), num_threads, [&](size_t i) {
    if (specs[i].layer < begin || specs[i].layer >= end) return;
    StoredTensor served = as_served(tensors[i], specs[i], type);
    if (served.type == tensors[i].type) return;
    held->converted[i] = converted(tensors[i], served, specs[i]);
    served.bytes = held->converted[i];
    tensors[i] = served;
  });
  held->files = std::move(files);
  return std::make_shared<const ModelFiles>(config, std::move(tensors), held);
}

}  // namespace atl::weights
