#pragma once
// A model in a GGUF file, as llama.cpp's users have it: its settings as a config.json, its tensors
// by the names of the family. Free of LibTorch.
#include <string>
#include <vector>

#include "atoll/codec/gguf_file.h"
#include "atoll/weights/config.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::weights {

/// What the model's config.json would say. Throws InputError naming an architecture or a setting
/// that we do not have.
std::string hf_config_of_gguf(const codec::GgufFile& file);

/// In the order of parameter_specs(). They live as long as the file. Throws InputError naming the
/// tensor that is missing, superfluous or of another shape.
std::vector<StoredTensor> tensors_of_gguf(const codec::GgufFile& file, const ModelConfig& config);

}  // namespace atl::weights
