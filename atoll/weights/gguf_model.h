#pragma once
// A model in a GGUF file, as llama.cpp's users have it: its settings as a config.json, its tensors
// by the names of the family. Free of LibTorch.
#include <span>
#include <string>

#include "atoll/codec/gguf_file.h"
#include "atoll/weights/config.h"

namespace atl::weights {

/// What the model's config.json would say. Throws InputError naming an architecture or a setting
/// that we do not have.
std::string hf_config_of_gguf(const codec::GgufFile& file);

/// Fills the flat buffer, dequantised bit for bit as PyPI `gguf` does. Throws InputError naming the
/// tensor that is missing, superfluous or of another shape.
void load_gguf_weights(const codec::GgufFile& file, const ModelConfig& config,
                       std::span<float> values_P);

}  // namespace atl::weights
