#include "atoll/weights/gguf_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>

#include "atoll/base/error.h"

namespace atl::weights {
namespace {

/// The name without ".weight" or ".bias".
std::string stem_of(const ParameterSpec& spec) {
  const auto has = [&](std::string_view part) { return spec.name.find(part) != std::string::npos; };
  const std::string of_experts = spec.expert >= 0 ? "_exps" : "";
  switch (spec.role) {
    case Role::kEmbedding:
      return "token_embd";
    case Role::kPositions:
      return "position_embd";
    case Role::kAttentionNorm:
      return "attn_norm";
    case Role::kAttentionNormBehind:
      return "post_attention_norm";
    case Role::kQueryKeyValue:
      return has(".q_proj")   ? "attn_q"
             : has(".k_proj") ? "attn_k"
             : has(".v_proj") ? "attn_v"
                              : "attn_qkv";
    case Role::kQueryNorm:
      return "attn_q_norm";
    case Role::kKeyNorm:
      return "attn_k_norm";
    case Role::kAttentionOutput:
      return "attn_output";
    case Role::kMlpNorm:
      return "ffn_norm";
    case Role::kMlpNormBehind:
      return "post_ffw_norm";
    case Role::kRouter:
      return "ffn_gate_inp";
    case Role::kSinks:
      return "attn_sinks";
    case Role::kMlpInput:
      return (has("gate_proj") || has(".w1.") ? "ffn_gate" : "ffn_up") + of_experts;
    case Role::kMlpOutput:
      return "ffn_down" + of_experts;
    case Role::kFinalNorm:
      return "output_norm";
    case Role::kHead:
      return "output";
  }
  return "";
}

}  // namespace

const GgufArchitecture& gguf_architecture_of(const ModelConfig& config) {
  // A window is a setting there, not an architecture.
  const std::string_view family =
      config.architecture == "mistral" ? "llama" : std::string_view(config.architecture);
  const auto* const found =
      std::ranges::find(kGgufArchitectures, family, &GgufArchitecture::family);
  if (found != kGgufArchitectures.end()) return *found;
  std::string known;
  for (const GgufArchitecture& one : kGgufArchitectures) known += fmt::format("{}, ", one.family);
  throw InputError(
      fmt::format("models of architecture '{}' have no GGUF file here; {}mistral have: write a "
                  "folder",
                  config.architecture, known));
}

const char* gguf_norm_key(const Family& family) {
  const NormKind norm = family.design.norm;
  return norm == NormKind::kRms || norm == NormKind::kRmsFromOne
             ? "attention.layer_norm_rms_epsilon"
             : "attention.layer_norm_epsilon";
}

std::vector<double> llama3_factors(const ModelConfig& config) {
  std::vector<double> factors;
  const auto turning = static_cast<double>(config.rotary_size());
  const auto original = static_cast<double>(config.rope_original_positions);
  for (int64_t i = 0; i < config.rotary_size() / 2; ++i) {
    const double wave =
        2 * std::numbers::pi * std::pow(config.rope_theta, 2 * static_cast<double>(i) / turning);
    const double blend =
        std::clamp((original / wave - config.rope_low_freq_factor) /
                       (config.rope_high_freq_factor - config.rope_low_freq_factor),
                   0.0, 1.0);
    factors.push_back(1 / ((1 - blend) / config.rope_factor + blend));
  }
  return factors;
}

double as_single(double value) { return std::stod(fmt::format("{}", static_cast<float>(value))); }

std::string gguf_name_of(const ParameterSpec& spec) {
  const std::string layer = spec.layer >= 0 ? fmt::format("blk.{}.", spec.layer) : "";
  return layer + stem_of(spec) + (spec.is_bias() ? ".bias" : ".weight");
}

std::vector<int64_t> gguf_shape_of(const ParameterSpec& spec) {
  if (!spec.inputs_first) return spec.shape;
  return {spec.shape.rbegin(), spec.shape.rend()};
}

float gguf_added(const ParameterSpec& spec, const ModelConfig& config) {
  if (family_of(config).design.norm != NormKind::kRmsFromOne) return 0;
  constexpr std::array kNorms = {
      Role::kAttentionNorm, Role::kAttentionNormBehind, Role::kQueryNorm, Role::kKeyNorm,
      Role::kMlpNorm,       Role::kMlpNormBehind,       Role::kFinalNorm};
  return std::ranges::count(kNorms, spec.role) > 0 ? 1 : 0;
}

std::string gguf_layer_pattern(const ModelConfig& config, const GgufArchitecture& architecture) {
  ModelConfig like = config;
  like.layer_pattern = architecture.layer_pattern;
  return canonical(like).layer_pattern;
}

double gguf_score_scale(const ModelConfig& config, const GgufArchitecture& architecture) {
  const bool is_wide = config.num_layers == architecture.num_layers_of_wide_scores;
  return 1 / std::sqrt(static_cast<double>(is_wide ? config.hidden_size / config.num_heads
                                                   : config.head_size()));
}

int64_t gguf_num_rows(const std::vector<int64_t>& shape, const RowOrder& order) {
  if (shape.size() == 1) return order.outer > 1 ? shape.front() : 1;
  return std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<>());
}

RowOrder gguf_order_of(const ParameterSpec& spec, const ModelConfig& config,
                       const GgufArchitecture& architecture) {
  if (spec.role != Role::kQueryKeyValue) return {};
  if (architecture.rows == GgufRows::kQueriesFirst) {
    return {.outer = config.num_heads, .inner = 3, .run = config.head_size()};
  }
  const bool turns = spec.name.find("v_proj") == std::string::npos;
  if (architecture.rows == GgufRows::kAsOurs || !turns) return {};
  return {.outer = 2, .inner = config.head_size() / 2};
}

}  // namespace atl::weights
