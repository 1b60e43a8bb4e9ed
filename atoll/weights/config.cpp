#include "atoll/weights/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

bool is_head(const ParameterSpec& spec) { return spec.role == Role::kHead; }

/// That with the fewest letters.
std::string shortest_pattern(const ModelConfig& config) {
  const std::string& pattern = config.layer_pattern;
  if (pattern.empty() || config.num_layers < 1 || config.num_layers > kMaxLayers) return pattern;
  std::string layers;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    layers += pattern[static_cast<size_t>(layer) % pattern.size()];
  }
  size_t period = 1;
  while (layers.compare(period, layers.size() - period, layers, 0, layers.size() - period) != 0) {
    period += 1;
  }
  return layers.substr(0, period);
}

}  // namespace

int64_t ModelConfig::rotary_size() const {
  if (!family_of(*this).turns()) return 0;
  return static_cast<int64_t>(static_cast<double>(head_size()) * partial_rotary_factor);
}

int64_t ModelConfig::window_of(int64_t layer) const {
  if (layer_pattern.empty()) return layer < full_layers ? 0 : sliding_window;
  return layer_pattern[static_cast<size_t>(layer) % layer_pattern.size()] == 's' ? sliding_window
                                                                                 : 0;
}

bool ModelConfig::turns(int64_t layer) const {
  return layer_pattern.empty() ||
         layer_pattern[static_cast<size_t>(layer) % layer_pattern.size()] != 'n';
}

double ModelConfig::score_scale() const {
  return attention_multiplier != 0 ? attention_multiplier
                                   : 1 / std::sqrt(static_cast<double>(head_size()));
}

int64_t ModelConfig::context() const {
  const double stretch = rope_type == "dynamic" ? rope_factor : 1;
  return static_cast<int64_t>(static_cast<double>(max_positions) * stretch);
}

int64_t ModelConfig::steady_positions() const {
  if (rope_type == "longrope") return std::min(rope_original_positions, context());
  return rope_type == "dynamic" ? max_positions : context();
}

bool is_rope_type(std::string_view name) {
  constexpr std::string_view kTypes[] = {"default", "linear", "dynamic",
                                         "llama3",  "yarn",   "longrope"};
  return std::ranges::find(kTypes, name) != std::end(kTypes);
}

std::string pattern_of(char others, char last, int64_t interval, int64_t num_layers) {
  if (interval < 1 || interval > std::min(num_layers, kMaxLayers)) return {others};
  return std::string(static_cast<size_t>(interval - 1), others) + last;
}

ModelConfig canonical(ModelConfig config) {
  const ModelConfig usual;
  if (config.num_heads > 0 && config.hidden_size % config.num_heads == 0 &&
      config.head_dim == config.hidden_size / config.num_heads) {
    config.head_dim = usual.head_dim;
  }
  if (config.full_layers >= config.num_layers) config.sliding_window = usual.sliding_window;
  if (config.sliding_window == 0) config.full_layers = usual.full_layers;
  if (config.rope_type == "default") config.rope_factor = usual.rope_factor;
  if (config.rope_type != "llama3") {
    config.rope_low_freq_factor = usual.rope_low_freq_factor;
    config.rope_high_freq_factor = usual.rope_high_freq_factor;
  }
  if (config.rope_type != "yarn") {
    config.rope_beta_fast = usual.rope_beta_fast;
    config.rope_beta_slow = usual.rope_beta_slow;
    config.rope_whole_pairs = usual.rope_whole_pairs;
  }
  if (config.rope_type != "longrope") {
    config.rope_short_factors = usual.rope_short_factors;
    config.rope_long_factors = usual.rope_long_factors;
    if (config.rope_type != "yarn") config.rope_attention_factor = usual.rope_attention_factor;
    if (config.rope_type != "yarn" && config.rope_type != "llama3") {
      config.rope_original_positions = usual.rope_original_positions;
    }
  }
  if (config.num_heads > 0 && config.head_size() > 0) {
    const double usual_scale = 1 / std::sqrt(static_cast<double>(config.head_size()));
    if (config.attention_multiplier == usual_scale) config.attention_multiplier = 0;
  }
  config.layer_pattern = shortest_pattern(config);
  const bool has_pattern = !config.layer_pattern.empty();
  if (has_pattern && config.layer_pattern.find('s') == std::string::npos) config.sliding_window = 0;
  if (config.layer_pattern == "s" || config.layer_pattern == "f") config.layer_pattern = "";
  if (config.sliding_window == 0) config.rope_local_theta = usual.rope_local_theta;
  if (config.rope_local_theta == config.rope_theta)
    config.rope_local_theta = usual.rope_local_theta;
  return config;
}

std::vector<double> numbers_of(std::string_view list) {
  std::vector<double> numbers;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    std::string_view word = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    const std::optional<double> number = number_in<double>(word);
    if (!number) throw UsageError(fmt::format("'{}' is no number", word));
    numbers.push_back(*number);
  }
  return numbers;
}

std::string list_of(const std::vector<double>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ","));
}

std::vector<ParameterSpec> ParameterSpec::parts() const {
  if (num_experts == 0) return {*this};
  std::vector<ParameterSpec> parts(static_cast<size_t>(num_experts), *this);
  for (int64_t i = 0; i < num_experts; ++i) {
    ParameterSpec& part = parts[static_cast<size_t>(i)];
    part.shape.erase(part.shape.begin());
    part.size = size / num_experts;
    part.offset = offset + i * part.size;
    part.expert = i;
    part.num_experts = 0;
  }
  return parts;
}

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
  std::vector<ParameterSpec> specs = family_of(config).tensors(config);
  if (config.tie_embeddings) std::erase_if(specs, is_head);
  return specs;
}

int64_t num_parameters(const ModelConfig& config) {
  const ParameterSpec last = parameter_specs(config).back();
  return last.offset + last.size;
}

}  // namespace atl::weights
