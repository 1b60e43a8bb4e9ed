#include "atoll/weights/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/weights/families.h"
#include "atoll/weights/gguf_model.h"
#include "atoll/weights/manifest.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// The files that hold the weights, by name.
std::vector<fs::path> weight_files(const fs::path& folder) {
  if (fs::exists(folder / kWeights)) return {folder / kWeights};
  const fs::path index = folder / kIndex;
  if (!fs::exists(index)) {
    throw InputError(fmt::format("'{}' has neither {} nor {}", folder.string(), kWeights, kIndex));
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

/// In their order, as many to a file as go into it.
std::vector<std::vector<ParameterSpec>> shards_of(const std::vector<ParameterSpec>& specs,
                                                  const SaveOptions& options) {
  std::vector<std::vector<ParameterSpec>> shards;
  int64_t size = 0;
  for (const ParameterSpec& spec : specs) {
    const int64_t own = spec.size * static_cast<int64_t>(num_bytes(options.type));
    if (shards.empty() || own > options.max_shard_bytes - size) {
      shards.emplace_back();
      size = 0;
    }
    shards.back().push_back(spec);
    size += own;
  }
  return shards;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

/// The newest of the complete checkpoints in `folder`, by its eight digits.
std::optional<fs::path> newest_checkpoint(const fs::path& folder) {
  std::optional<fs::path> newest;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const bool named = name.size() == 13 && name.starts_with("step-") &&
                       std::all_of(name.begin() + 5, name.end(),
                                   [](char digit) { return digit >= '0' && digit <= '9'; });
    if (!named) continue;
    if (!newest || newest->filename() < entry.path().filename()) newest = entry.path();
  }
  // Falling back to an older model without a word would answer for another one.
  if (newest && !fs::exists(*newest / "config.json")) {
    throw InputError(
        fmt::format("checkpoint '{}' has no config.json: it is damaged; remove this folder to go "
                    "on from the one before, or name a checkpoint",
                    newest->string()));
  }
  return newest;
}

}  // namespace

void save_hf_model(const fs::path& folder, const ModelConfig& config, const SpecialIds& ids,
                   std::span<const float> values_P, const SaveOptions& options) {
  const auto shards = shards_of(parameter_specs(config), options);
  nlohmann::ordered_json map;
  uint64_t total = 0;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    const std::string name = shards.size() == 1 ? kWeights
                                                : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                              shard + 1, shards.size());
    std::vector<Bytes> contents;
    std::vector<TensorView> tensors;
    for (const ParameterSpec& spec : shards[shard]) {
      ATOLL_CHECK(static_cast<size_t>(spec.offset + spec.size) <= values_P.size());
      contents.push_back(bytes_as(options.type, values_P.subspan(static_cast<size_t>(spec.offset),
                                                                 static_cast<size_t>(spec.size))));
      tensors.push_back(
          {.name = spec.name, .type = options.type, .shape = spec.shape, .bytes = contents.back()});
      map[spec.name] = name;
      total += contents.back().size();
    }
    write_safetensors(folder / name, tensors, {{"format", "pt"}});
  }
  if (shards.size() > 1) {
    const nlohmann::ordered_json index{{"metadata", {{"total_size", total}}}, {"weight_map", map}};
    write_text(folder / kIndex, index.dump(2) + "\n");
  }
  write_text(folder / "config.json", to_hf_config(config, ids, options.type));
  write_text(folder / "generation_config.json", to_generation_config(ids));
}

DType stored_type(const fs::path& folder) {
  if (codec::GgufFile::is_one(folder)) return DType::kF32;  // That holds the values of each type.
  const ModelConfig config = load_hf_config(folder).config;
  const std::string prefix(family_of(config).prefix);
  std::set<std::string> parameters;
  for (const ParameterSpec& spec : parameter_specs(config)) parameters.insert(spec.name);
  std::set<DType> types;
  for (const fs::path& path : weight_files(folder)) {
    const SafetensorsFile file(path);
    for (const TensorView& tensor : file.tensors()) {
      if (parameters.contains(tensor.name) || parameters.contains(prefix + tensor.name)) {
        types.insert(tensor.type);
      }
    }
  }
  return types == std::set{DType::kF16} || types == std::set{DType::kBF16} ? *types.begin()
                                                                           : DType::kF32;
}

std::string hf_config_text(const fs::path& model) {
  if (codec::GgufFile::is_one(model)) return hf_config_of_gguf(codec::GgufFile(model));
  return read_file(model / "config.json");
}

HfConfig load_hf_config(const fs::path& folder) {
  if (Manifest::exists(folder)) {
    const Manifest manifest(folder);
    manifest.check_file("config.json");
    if (fs::exists(folder / "tokenizer.json")) manifest.check_file("tokenizer.json");
  }
  const bool is_file = codec::GgufFile::is_one(folder);
  return from_hf_config(hf_config_text(folder),
                        (is_file ? folder : folder / "config.json").string());
}

void load_hf_weights(const fs::path& folder, const ModelConfig& config, std::span<float> values_P) {
  if (codec::GgufFile::is_one(folder)) {
    return load_gguf_weights(codec::GgufFile(folder), config, values_P);
  }
  const Family& family = family_of(config);
  std::map<std::string, ParameterSpec> wanted;
  for (ParameterSpec& spec : family.tensors(config)) wanted.emplace(spec.name, spec);
  std::optional<Manifest> manifest;
  if (Manifest::exists(folder)) manifest.emplace(folder);
  std::vector<float> tied_head;
  for (const fs::path& path : weight_files(folder)) {
    const SafetensorsFile file(path);
    if (manifest) manifest->check_tensors(path.filename().string(), file);
    for (const TensorView& tensor : file.tensors()) {
      auto found = wanted.find(tensor.name);
      if (found == wanted.end()) found = wanted.find(std::string(family.prefix) + tensor.name);
      if (found == wanted.end()) {
        if (is_buffer(family, tensor.name)) continue;
        throw InputError(
            fmt::format("'{}': tensor '{}' is not part of the model that config.json describes, or "
                        "appears twice",
                        path.string(), tensor.name));
      }
      const ParameterSpec& spec = found->second;
      if (tensor.shape != spec.shape) {
        throw InputError(fmt::format("'{}': tensor '{}' has shape {}, and config.json asks for {}",
                                     path.string(), tensor.name, shape_text(tensor.shape),
                                     shape_text(spec.shape)));
      }
      const auto size = static_cast<size_t>(spec.size);
      const bool is_tied_head = config.tie_embeddings && spec.role == Role::kHead;
      if (is_tied_head) tied_head.resize(size);
      copy_as_f32(tensor,
                  is_tied_head ? std::span(tied_head)
                               : values_P.subspan(static_cast<size_t>(spec.offset), size),
                  path.string());
      wanted.erase(found);
    }
  }
  if (config.tie_embeddings) {
    std::erase_if(wanted, [](const auto& item) { return item.second.role == Role::kHead; });
  }
  if (!wanted.empty()) {
    throw InputError(fmt::format("'{}': tensor '{}' is missing ({} in all)", folder.string(),
                                 wanted.begin()->first, wanted.size()));
  }
  const auto embedding_P =
      values_P.first(static_cast<size_t>(config.vocab_size * config.hidden_size));
  if (!tied_head.empty() && !std::ranges::equal(tied_head, embedding_P)) {
    throw InputError(
        fmt::format("'{}': config.json ties the head to the embedding ('tie_word_embeddings'), and "
                    "the file has another head; set it to false if the head is meant",
                    folder.string()));
  }
}

fs::path resolve_model(const fs::path& path) {
  if (codec::GgufFile::is_one(path)) return path;
  if (fs::exists(path / "config.json")) return path;
  std::error_code none;
  if (!fs::is_directory(path, none)) {
    throw InputError(
        fmt::format("'{}' is neither a folder nor a GGUF file; name a model or a run directory",
                    path.string()));
  }
  if (const auto own = newest_checkpoint(path / "checkpoints")) return *own;
  std::optional<fs::path> newest;
  for (const auto& entry : fs::directory_iterator(path, none)) {
    if (!entry.path().filename().string().starts_with("island-")) continue;
    const auto found = newest_checkpoint(entry.path() / "checkpoints");
    if (!found) continue;
    // Islands of one step hold the same model: take the first by name, so that runs repeat.
    const auto key = [](const fs::path& file) { return file.filename(); };
    if (!newest || key(*newest) < key(*found) ||
        (key(*newest) == key(*found) && *found < *newest)) {
      newest = found;
    }
  }
  if (newest) return *newest;
  throw InputError(fmt::format(
      "'{}' holds neither a model (config.json) nor a complete checkpoint (checkpoints/step-*)",
      path.string()));
}

}  // namespace atl::weights
