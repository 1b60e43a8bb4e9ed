#include "atoll/weights/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "atoll/base/error.h"

namespace atl::weights {
namespace {

enum class Suite { kPythia, kOlmo2, kDiLoCo, kChinchilla };

struct Preset {
  std::string_view name;
  Suite suite;
  int64_t num_layers;
  int64_t hidden_size;
  int64_t num_heads;
  int64_t vocab_size;        // Padded.
  int64_t inner_size = 0;    // Of the MLP; 0: as the suite has it.
  int64_t num_kv_heads = 0;  // 0: num_heads.
  int64_t head_dim = 0;
};

constexpr Preset kPresets[] = {
    {"pythia-14m", Suite::kPythia, 6, 128, 4, 50304},
    {"pythia-31m", Suite::kPythia, 6, 256, 8, 50304},
    {"pythia-70m", Suite::kPythia, 6, 512, 8, 50304},
    {"pythia-160m", Suite::kPythia, 12, 768, 12, 50304},
    {"pythia-410m", Suite::kPythia, 24, 1024, 16, 50304},
    {"pythia-1b", Suite::kPythia, 16, 2048, 8, 50304},
    {"pythia-1.4b", Suite::kPythia, 24, 2048, 16, 50304},
    {"pythia-2.8b", Suite::kPythia, 32, 2560, 32, 50304},
    {"pythia-6.9b", Suite::kPythia, 32, 4096, 32, 50432},
    {"pythia-12b", Suite::kPythia, 36, 5120, 40, 50688},
    {"olmo2-14m", Suite::kOlmo2, 4, 128, 8, 100352},
    {"olmo2-30m", Suite::kOlmo2, 4, 256, 8, 100352},
    {"olmo2-60m", Suite::kOlmo2, 8, 384, 8, 100352},
    {"olmo2-100m", Suite::kOlmo2, 12, 512, 8, 100352},
    {"olmo2-190m", Suite::kOlmo2, 12, 768, 12, 100352},
    {"olmo2-370m", Suite::kOlmo2, 16, 1024, 16, 100352},
    {"olmo2-600m", Suite::kOlmo2, 16, 1344, 16, 100352},
    {"olmo2-760m", Suite::kOlmo2, 16, 1536, 16, 100352},
    {"olmo2-1b", Suite::kOlmo2, 16, 2048, 16, 100352},
    {"olmo2-7b", Suite::kOlmo2, 32, 4096, 32, 100352, 11008},
    {"olmo2-13b", Suite::kOlmo2, 40, 5120, 40, 100352, 13824},
    {"olmo2-32b", Suite::kOlmo2, 64, 5120, 40, 100352, 27648, 8},
    {"diloco-60m", Suite::kDiLoCo, 3, 896, 16, 32000, 0, 0, 64},
    {"diloco-150m", Suite::kDiLoCo, 12, 896, 16, 32000, 0, 0, 64},
    {"diloco-400m", Suite::kDiLoCo, 12, 1536, 12, 32000, 0, 0, 128},
    {"chinchilla-35m", Suite::kChinchilla, 6, 512, 8, 32768},
    {"chinchilla-90m", Suite::kChinchilla, 9, 768, 12, 32768},
    {"chinchilla-180m", Suite::kChinchilla, 12, 1024, 16, 32768},
    {"chinchilla-335m", Suite::kChinchilla, 15, 1280, 20, 32768},
    {"chinchilla-550m", Suite::kChinchilla, 18, 1536, 24, 32768},
    {"chinchilla-1.3b", Suite::kChinchilla, 24, 2048, 32, 32768},
    {"chinchilla-2.4b", Suite::kChinchilla, 30, 2560, 40, 32768},
    {"chinchilla-4b", Suite::kChinchilla, 36, 3072, 48, 32768},
    {"chinchilla-10b", Suite::kChinchilla, 48, 4096, 64, 32768},
};

constexpr int64_t kChinchillaPositions = 2048;
constexpr int64_t kChinchillaHead = 64;

int64_t rounded_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Three matrices of this width have as many parameters as two of 4 times the hidden size.
int64_t gated_width(int64_t hidden) { return rounded_up(8 * hidden / 3, 8); }

void add_pythia(const Preset& preset, ModelConfig& config) {
  config.architecture = "gpt_neox";
  config.intermediate_size = 4 * preset.hidden_size;
  config.max_positions = 2048;
  config.partial_rotary_factor = 0.25;
  config.attention_bias = true;
}

void add_olmo2(const Preset& preset, ModelConfig& config) {
  config.architecture = "olmo2";
  config.intermediate_size = preset.inner_size > 0
                                 ? preset.inner_size
                                 : rounded_up(8 * preset.hidden_size / 3 * 3 / 2, 256);
  config.max_positions = 4096;
  config.rope_theta = 500'000;
  config.norm_eps = 1e-6;
}

void add_chinchilla(ModelConfig& config, int64_t max_positions) {
  config.architecture = "qwen3";
  config.intermediate_size = gated_width(config.hidden_size);
  config.max_positions = max_positions;
  config.tie_embeddings = true;
}

}  // namespace

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

ModelConfig preset(std::string_view name) {
  const auto found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == std::end(kPresets)) {
    throw UsageError(fmt::format("model.preset: there is no '{}'; choose one of {}", name,
                                 fmt::join(preset_names(), ", ")));
  }
  ModelConfig config;
  config.vocab_size = found->vocab_size;
  config.num_layers = found->num_layers;
  config.hidden_size = found->hidden_size;
  config.num_heads = found->num_heads;
  config.num_kv_heads = found->num_kv_heads > 0 ? found->num_kv_heads : found->num_heads;
  config.head_dim = found->head_dim;
  config.tie_embeddings = false;
  switch (found->suite) {
    case Suite::kPythia:
      add_pythia(*found, config);
      break;
    case Suite::kOlmo2:
      add_olmo2(*found, config);
      break;
    case Suite::kDiLoCo:
      add_chinchilla(config, 1024);
      break;
    case Suite::kChinchilla:
      add_chinchilla(config, kChinchillaPositions);
      break;
  }
  return config;
}

ModelConfig chinchilla(int64_t num_layers, int64_t hidden_size, int64_t vocab_size) {
  int64_t num_heads = std::max<int64_t>(1, hidden_size / kChinchillaHead);
  while (hidden_size % (2 * num_heads) != 0 && num_heads > 1) --num_heads;
  ModelConfig config;
  config.vocab_size = vocab_size;
  config.num_layers = num_layers;
  config.hidden_size = hidden_size;
  config.num_heads = num_heads;
  config.num_kv_heads = num_heads;
  add_chinchilla(config, kChinchillaPositions);
  return config;
}

}  // namespace atl::weights
