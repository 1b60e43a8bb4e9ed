#include "atoll/weights/hf_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/weights/adapter.h"
#include "atoll/weights/families.h"
#include "atoll/weights/gguf_model.h"
#include "atoll/weights/manifest.h"
#include "atoll/weights/model_files.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;

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
  if (newest && fs::exists(*newest / kAdapterConfigFile)) {
    throw InputError(fmt::format(
        "checkpoint '{}' is an adapter, not a model; serve its model with --adapter NAME={}",
        newest->string(), newest->string()));
  }
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
    const std::string name = shards.size() == 1 ? kWeightsFile
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
    write_text(folder / kWeightsIndex, index.dump(2) + "\n");
  }
  write_text(folder / "config.json", to_hf_config(config, ids, options.type));
  write_text(folder / "generation_config.json", to_generation_config(ids));
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
