#include "atoll/weights/served_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/codec/ggml_quantize.h"
#include "atoll/weights/model_manifest.h"
#include "atoll/weights/shared_work.h"

namespace atl::weights {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"auto", "bf16", "int8", "int4"};
constexpr std::array<std::string_view, 3> kKvNames = {"auto", "fp32", "bf16"};
constexpr std::string_view kKvMark = "kv-";

template <typename Type>
std::optional<Type> type_named(std::string_view name) {
  const auto names = names_of(Type());
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Type>(found - names.begin());
}

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

std::span<const std::string_view> names_of(KvType) { return kKvNames; }

ServedAs ServedAs::of_options(std::string_view dtype, std::string_view kv_dtype) {
  const auto type = type_named<ServedType>(dtype);
  const auto kv = type_named<KvType>(kv_dtype);
  if (!type) throw UsageError(fmt::format("--dtype: there is no '{}'", dtype));
  if (!kv) throw UsageError(fmt::format("--kv-dtype: there is no '{}'", kv_dtype));
  return {*type, *kv};
}

std::optional<ServedAs> ServedAs::parse(std::string_view text) {
  ServedAs as;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find('+'));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const bool is_kv = word.starts_with(kKvMark);
    const auto type = type_named<ServedType>(word);
    const auto kv = is_kv ? type_named<KvType>(word.substr(kKvMark.size())) : std::nullopt;
    if (is_kv ? !kv : !type) return std::nullopt;
    if (type) as.type = *type;
    if (kv) as.kv = *kv;
  }
  return as;
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
                             const std::vector<StoredTensor>& tensors, ServedAs as) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::string named = digest;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (as_served(tensors.at(i), specs[i], as.type).type == tensors[i].type) continue;
    named += fmt::format("+{}", kNames.at(static_cast<size_t>(as.type)));
    break;
  }
  if (keeps_narrow_kv(config, tensors, as) != keeps_narrow_kv(config, tensors, {as.type})) {
    named += fmt::format("+{}{}", kKvMark, kKvNames.at(static_cast<size_t>(as.kv)));
  }
  return named;
}

bool keeps_narrow_kv(const ModelConfig& config, std::span<const StoredTensor> tensors,
                     ServedAs as) {
  if (as.kv != KvType::kAuto) return as.kv == KvType::kBf16;
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].role != Role::kQueryKeyValue || specs[i].is_bias()) continue;
    if (as_served(tensors[i], specs[i], as.type).type != codec::GgmlType::kF32) return true;
  }
  return false;
}

std::shared_ptr<const ModelFiles> as_served(const ModelConfig& config,
                                            std::shared_ptr<const ModelFiles> files, ServedAs as,
                                            int64_t begin, int64_t end, int num_threads) {
  if (as == ServedAs()) return files;
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
    StoredTensor served = as_served(tensors[i], specs[i], as.type);
    if (served.type == tensors[i].type) return;
    held->converted[i] = converted(tensors[i], served, specs[i]);
    served.bytes = held->converted[i];
    tensors[i] = served;
  });
  held->files = std::move(files);
  return std::make_shared<const ModelFiles>(config, std::move(tensors), held, as.kv);
}

}  // namespace atl::weights
