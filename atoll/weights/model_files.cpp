#include "atoll/weights/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/weights/families.h"
#include "atoll/weights/gguf_model.h"
#include "atoll/weights/manifest.h"
#include "atoll/weights/packed_experts.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;

/// The files that hold the weights, by name.
std::vector<fs::path> weight_files(const fs::path& folder) {
  if (fs::exists(folder / kWeightsFile)) return {folder / kWeightsFile};
  const fs::path index = folder / kWeightsIndex;
  if (!fs::exists(index)) {
    throw InputError(
        fmt::format("'{}' has neither {} nor {}", folder.string(), kWeightsFile, kWeightsIndex));
  }
  const std::string text = read_file(index);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    throw InputError(fmt::format("'{}' is not a JSON object with a weight_map", index.string()));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name || name == "..") {
      throw InputError(
          fmt::format("'{}': the file of tensor '{}' is not a name", index.string(), tensor));
    }
    names.insert(name);
  }
  std::vector<fs::path> files;
  for (const std::string& name : names) files.push_back(folder / name);
  return files;
}

/// Tensors that carry no parameters: rotary frequencies, causal masks.
bool is_buffer(const Family& family, const std::string& name) {
  return std::ranges::any_of(family.buffers,
                             [&](std::string_view end) { return name.ends_with(end); });
}

/// What a folder must have still, by name.
class Wanted {
 public:
  explicit Wanted(const ModelConfig& config) : family_(family_of(config)) {
    for (ParameterSpec& spec : family_.tensors(config)) wanted_.emplace(spec.name, std::move(spec));
  }

  /// Takes it off the list. Nothing where the tensor is none of the model's parameters.
  std::optional<ParameterSpec> take(const std::string& name, const fs::path& file) {
    auto found = wanted_.find(name);
    if (found == wanted_.end()) found = wanted_.find(std::string(family_.prefix) + name);
    if (found == wanted_.end()) {
      if (is_buffer(family_, name)) return {};
      throw InputError(
          fmt::format("'{}': tensor '{}' is not part of the model that config.json describes, or "
                      "appears twice",
                      file.string(), name));
    }
    ParameterSpec spec = std::move(found->second);
    wanted_.erase(found);
    return spec;
  }

  void require_all(const fs::path& folder, bool may_lack_head) {
    if (may_lack_head) {
      std::erase_if(wanted_, [](const auto& item) { return item.second.role == Role::kHead; });
    }
    if (wanted_.empty()) return;
    throw InputError(fmt::format("'{}': tensor '{}' is missing ({} in all)", folder.string(),
                                 wanted_.begin()->first, wanted_.size()));
  }

 private:
  const Family& family_;
  std::map<std::string, ParameterSpec> wanted_;
};

void require_shape(const TensorView& tensor, const ParameterSpec& spec, const fs::path& file) {
  if (tensor.shape == spec.shape) return;
  throw InputError(fmt::format("'{}': tensor '{}' has shape ({}), and config.json asks for ({})",
                               file.string(), tensor.name, fmt::join(tensor.shape, ", "),
                               fmt::join(spec.shape, ", ")));
}

bool are_equal(const StoredTensor& a, const StoredTensor& b) {
  std::vector<float> a_row(static_cast<size_t>(a.width));
  std::vector<float> b_row(a_row.size());
  for (int64_t row = 0; row < a.num_rows; ++row) {
    a.read(row, 0, a_row);
    b.read(row, 0, b_row);
    if (a_row != b_row) return false;
  }
  return true;
}

/// By name.
std::map<std::string, StoredTensor> tensors_in(const fs::path& folder, const ModelConfig& config,
                                               std::vector<SafetensorsFile>& shards,
                                               std::vector<Bytes>& joined_bytes) {
  std::optional<Manifest> manifest;
  if (Manifest::exists(folder)) manifest.emplace(folder);
  Wanted wanted(config);
  PackedExperts packed;
  const bool may_be_packed = !family_of(config).quantised.empty();
  std::map<std::string, StoredTensor> found;
  std::optional<StoredTensor> tied_head;
  for (const fs::path& path : weight_files(folder)) {
    const SafetensorsFile& file = shards.emplace_back(path);
    if (manifest) manifest->check_tensors(path.filename().string(), file);
    for (const TensorView& tensor : file.tensors()) {
      if (may_be_packed && packed.take(tensor, folder.string())) continue;
      const std::optional<ParameterSpec> spec = wanted.take(tensor.name, path);
      if (!spec) continue;
      require_shape(tensor, *spec, path);
      const StoredTensor stored =
          stored_tensor(parameter_type(tensor, path.string()), tensor.bytes, *spec);
      if (config.tie_embeddings && spec->role == Role::kHead) {
        tied_head = stored;
      } else {
        found.emplace(spec->name, stored);
      }
    }
  }
  for (const auto& [name, pair] : packed.pairs()) {
    const std::optional<ParameterSpec> spec = wanted.take(name, folder);
    if (!spec) continue;
    found.emplace(spec->name, unpacked(pair, *spec, joined_bytes.emplace_back(), folder.string()));
  }
  wanted.require_all(folder, config.tie_embeddings);
  if (tied_head && !are_equal(*tied_head, found.at(parameter_specs(config).front().name))) {
    throw InputError(
        fmt::format("'{}': config.json ties the head to the embedding ('tie_word_embeddings'), and "
                    "the file has another head; set it to false if the head is meant",
                    folder.string()));
  }
  return found;
}

}  // namespace

ModelFiles::ModelFiles(const fs::path& path, const ModelConfig& config)
    : specs_(parameter_specs(config)) {
  if (codec::GgufFile::is_one(path)) {
    gguf_ = std::make_unique<codec::GgufFile>(path);
    tensors_ = tensors_of_gguf(*gguf_, config);
    return;
  }
  const std::map<std::string, StoredTensor> found = tensors_in(path, config, shards_, joined_);
  for (const ParameterSpec& spec : specs_) tensors_.push_back(found.at(spec.name));
}

ModelFiles::ModelFiles(const ModelConfig& config, std::vector<StoredTensor> tensors,
                       std::shared_ptr<const void> holder, KvType kv_type)
    : specs_(parameter_specs(config)),
      tensors_(std::move(tensors)),
      holder_(std::move(holder)),
      kv_type_(kv_type) {
  ATOLL_CHECK(tensors_.size() == specs_.size());
}

void ModelFiles::read(std::span<float> values_P) const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    const std::vector<ParameterSpec> parts = specs_[i].parts();
    for (const ParameterSpec& part : parts) {
      const auto index = &part - parts.data();
      tensors_[i]
          .part(index, std::ssize(parts))
          .read_all(part.inputs_first, values_P.subspan(static_cast<size_t>(part.offset),
                                                        static_cast<size_t>(part.size)));
    }
  }
}

DType ModelFiles::common_type() const {
  const auto all_are = [&](codec::GgmlType type) {
    return !gguf_ && std::ranges::all_of(tensors_, [&](const StoredTensor& tensor) {
      // BF16 has all that an expert in MXFP4 can be but what is smaller than any weight.
      const bool is_packed = tensor.type == codec::GgmlType::kMXFP4;
      return tensor.type == type || (is_packed && type == codec::GgmlType::kBF16);
    });
  };
  if (all_are(codec::GgmlType::kF16)) return DType::kF16;
  return all_are(codec::GgmlType::kBF16) ? DType::kBF16 : DType::kF32;
}

}  // namespace atl::weights
