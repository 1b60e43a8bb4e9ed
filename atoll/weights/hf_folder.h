#pragma once
// A model as a Hugging Face folder (or, to be read, a GGUF file in its place): config.json,
// generation_config.json, model.safetensors (or several behind model.safetensors.index.json). Free
// of LibTorch: parameters are one flat FP32 buffer in the order of parameter_specs().
// docs/formats.md has the details.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>

#include "atoll/weights/config.h"
#include "atoll/weights/hf_config.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {

struct SaveOptions {
  DType type = DType::kF32;  // F32, F16, BF16.
  /// Several files, behind an index, where one would be larger; a tensor is never cut.
  int64_t max_shard_bytes = std::numeric_limits<int64_t>::max();
};

/// Writes and syncs the files that transformers needs for the model itself (the tokenizer's file is
/// the caller's). The folder must exist. Throws InputError when the disk is full.
void save_hf_model(const std::filesystem::path& folder, const ModelConfig& config,
                   const SpecialIds& ids, std::span<const float> values_P,
                   const SaveOptions& options = {});

/// The model's config.json, or what a GGUF file has in its place (gguf_model.h).
std::string hf_config_text(const std::filesystem::path& model);

/// Throws InputError: see from_hf_config(). Where there is a manifest.json (a run's checkpoint),
/// this checks config.json and tokenizer.json against it, and ModelFiles every tensor.
HfConfig load_hf_config(const std::filesystem::path& folder);

/// The folder or GGUF file with the model that `path` means: itself when it is one, else the newest
/// complete checkpoint of a run directory (checkpoints/step-NNNNNNNN, else those of island-*; names
/// that end in .tmp are incomplete). Throws InputError when there is none, or when the newest has
/// no config.json.
std::filesystem::path resolve_model(const std::filesystem::path& path);

}  // namespace atl::weights
