#pragma once
// Hugging Face's config.json, read and written. Pure functions on text.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/weights/config.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {

/// Tokens that a config.json names; a model without one has no value.
struct SpecialIds {
  std::optional<int64_t> begin_of_text = {};
  std::vector<int64_t> ends = {};  // Any of them ends a text.
  std::optional<int64_t> padding = {};
};

/// A config.json of the model's family that transformers 4 and 5 both read; `type`: of the weights.
std::string to_hf_config(const ModelConfig& config, const SpecialIds& ids,
                         DType type = DType::kF32);

/// The generation_config.json of such a model.
std::string to_generation_config(const SpecialIds& ids);

/// A tokenizer_config.json: tokenizer.json does not say which of its tokens ends a text.
std::string to_tokenizer_config(const ModelConfig& config, std::string_view end_of_text);

struct HfConfig {
  ModelConfig config;
  SpecialIds ids;
};

/// In the spelling of transformers 4 (rope_theta, rope_scaling) or 5 (rope_parameters). Throws
/// InputError naming the key: an architecture we do not have, or a setting that changes the
/// mathematics in a way we do not compute (another activation, other rotary scalings, quantised
/// weights ...). `name` (a file) appears in messages.
HfConfig from_hf_config(std::string_view json, const std::string& name);

}  // namespace atl::weights
