#include "atoll/weights/model_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"

namespace atl::weights {
namespace {

constexpr uint32_t kMagic = 0x4D4C5441;  // "ATLM"
constexpr uint16_t kVersion = 1;
constexpr size_t kMaxSettings = size_t{1} << 20;

/// A fault of the manifest's.
InputError fault(const std::string& what) {
  return InputError("the model's manifest cannot be used: " + what);
}

ModelConfig config_in(const std::string& settings) {
  ModelConfig config;
  SettingList list;
  config.visit(list);
  try {
    list.apply_toml(settings, "its settings");
    check(config);
  } catch (const UsageError& error) {  // It is no user's.
    throw fault(error.what());
  }
  return config;
}

/// Whether rows that lie so are those of a parameter like that.
bool fits(const StoredTensor& tensor, const ParameterSpec& spec) {
  const auto block = static_cast<int64_t>(codec::ggml_block(tensor.type).num_values);
  const auto& [outer, inner, run] = tensor.order;
  const auto is_within = [&](int64_t count) { return count >= 1 && count <= spec.size; };
  if (!is_within(tensor.num_rows) || !is_within(tensor.width) || tensor.width % block != 0 ||
      spec.size % tensor.width != 0 || tensor.num_rows != spec.size / tensor.width ||
      !std::isfinite(tensor.added)) {
    return false;
  }
  if (!is_within(outer) || !is_within(inner) || !is_within(run) || outer > spec.size / inner ||
      run > spec.size / (outer * inner) || tensor.num_rows % (outer * inner * run) != 0 ||
      (outer > 1 && (spec.num_experts > 0 || tensor.inputs_first))) {
    return false;
  }
  if (spec.shape.size() == 1) return !tensor.inputs_first;
  // A row for each output, or for each input.
  const bool as_listed = tensor.inputs_first == spec.inputs_first;
  if (tensor.inputs_first && !spec.inputs_first) return false;
  return tensor.width == spec.shape[spec.shape.size() - (as_listed ? 1 : 2)];
}

StoredTensor read_tensor(ByteReader& in) {
  StoredTensor tensor;
  const auto number = in.get<uint32_t>();
  const auto type = codec::ggml_type(number);
  if (!type) throw fault(fmt::format("there is no type {}", number));
  tensor.type = *type;
  tensor.num_rows = in.get<int64_t>();
  tensor.width = in.get<int64_t>();
  tensor.order.outer = in.get<int64_t>();
  tensor.order.inner = in.get<int64_t>();
  tensor.order.run = in.get<int64_t>();
  const auto inputs_first = in.get<uint8_t>();
  if (inputs_first > 1) throw fault("a truth value is none");
  tensor.inputs_first = inputs_first == 1;
  tensor.added = in.get<float>();
  return tensor;
}

}  // namespace

Bytes encode(const ModelManifest& manifest) {
  ModelConfig config = manifest.config;
  SettingList settings;
  config.visit(settings);
  ByteWriter out;
  out.put(kMagic).put(kVersion).put_string(settings.dump(/*with_help=*/false));
  out.put(static_cast<uint32_t>(manifest.tensors.size()));
  for (const StoredTensor& tensor : manifest.tensors) {
    out.put(tensor.type).put(tensor.num_rows).put(tensor.width);
    out.put(tensor.order.outer).put(tensor.order.inner).put(tensor.order.run);
    out.put(static_cast<uint8_t>(tensor.inputs_first)).put(tensor.added);
  }
  for (const Digest& part : manifest.parts) out.put_bytes(part);
  return out.take();
}

ModelManifest decode_manifest(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (in.get<uint32_t>() != kMagic) throw fault("it is none");
  if (const auto version = in.get<uint16_t>(); version != kVersion) {
    throw fault(fmt::format("it is of version {}, and this program reads {}", version, kVersion));
  }
  ModelManifest manifest{
      .config = config_in(in.get_string(kMaxSettings)), .tensors = {}, .parts = {}};
  const ModelConfig& config = manifest.config;
  const auto count = in.get<uint32_t>();
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  if (count != specs.size()) {
    throw fault(fmt::format("{} tensors, and such a model has {}", count, specs.size()));
  }
  for (const ParameterSpec& spec : specs) {
    manifest.tensors.push_back(read_tensor(in));
    if (!fits(manifest.tensors.back(), spec)) {
      throw fault(fmt::format("tensor '{}' has other rows than such a model's", spec.name));
    }
  }
  for (const std::vector<size_t>& part : tensors_by_part(config)) {
    if (const uint64_t size = part_bytes(manifest.tensors, part); size > kMaxPartBytes) {
      throw fault(fmt::format("a layer of {} bytes", size));
    }
    std::ranges::copy(in.get_bytes(sizeof(Digest)), manifest.parts.emplace_back().begin());
  }
  in.expect_end();
  return manifest;
}

std::string digest_of(std::span<const std::byte> encoded_manifest) {
  return hex(tree_digest(encoded_manifest));
}

std::vector<std::vector<size_t>> tensors_by_part(const ModelConfig& config) {
  std::vector<std::vector<size_t>> parts(static_cast<size_t>(config.num_layers) + 1);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < specs.size(); ++i) {
    const int64_t layer = specs[i].layer < 0 ? config.num_layers : specs[i].layer;
    parts[static_cast<size_t>(layer)].push_back(i);
  }
  return parts;
}

uint64_t num_bytes(const StoredTensor& tensor) {
  return static_cast<uint64_t>(tensor.num_bytes(tensor.num_rows * tensor.width));
}

uint64_t part_bytes(const std::vector<StoredTensor>& tensors, std::span<const size_t> part) {
  uint64_t bytes = 0;
  for (const size_t index : part) bytes += num_bytes(tensors[index]);
  return bytes;
}

}  // namespace atl::weights
