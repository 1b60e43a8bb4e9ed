#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/base/error.h"
#include "atoll/weights/config.h"
#include "atoll/weights/config_limits.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError("model: " + message);
}

void require_range(const char* field, int64_t value, int64_t max) {
  require(value >= 1 && value <= max,
          fmt::format("'{}' must be from 1 to {}, not {}", field, max, value));
}

/// What a family does not have keeps its default. check() has a rule of its own for num_kv_heads.
void refuse_foreign(ModelConfig config, const Family& family) {
  ModelConfig usual;
  SettingList given;
  SettingList standard;
  config.visit(given);
  usual.visit(standard);
  for (size_t i = 0; i < given.settings().size(); ++i) {
    const Setting& setting = given.settings()[i];
    const bool is_a_choice =
        setting.key != "num_kv_heads" &&
        std::ranges::any_of(families(), [&](const Family& one) { return one.has(setting.key); });
    require(
        !is_a_choice || family.has(setting.key) || setting.text() == standard.settings()[i].text(),
        fmt::format("'{}' has no effect with architecture '{}'; leave it out", setting.key,
                    family.name));
  }
}

void check_factors_of_pairs(const char* field, const std::string& list, const ModelConfig& config) {
  if (config.rope_type != "longrope") {
    return require(
        list.empty(),
        fmt::format("'{}' has no effect but with rope_type 'longrope'; leave it out", field));
  }
  std::vector<double> factors;
  try {
    factors = numbers_of(list);
  } catch (const UsageError& error) {
    require(false, fmt::format("'{}': {}", field, error.what()));
  }
  require(std::ssize(factors) == config.rotary_size() / 2,
          fmt::format("'{}' must have {} numbers, one for each pair that turns, not {}", field,
                      config.rotary_size() / 2, factors.size()));
  require(std::ranges::all_of(factors, [](double one) { return std::isfinite(one) && one > 0; }),
          fmt::format("'{}' must have numbers over 0", field));
}

void check_rope(const ModelConfig& config) {
  if (!family_of(config).turns()) return;
  require(config.rope_theta >= 1,
          fmt::format("'rope_theta' must be at least 1, not {}", config.rope_theta));
  const std::string& type = config.rope_type;
  require(is_rope_type(type),
          fmt::format("'rope_type' must be {}, not '{}'", kRopeTypeNames, type));
  require(config.rope_factor >= 1 && config.rope_factor <= kMaxRopeFactor,
          fmt::format("'rope_factor' must be from 1 to {}, not {}", kMaxRopeFactor,
                      config.rope_factor));
  require(type != "default" || config.rope_factor == 1,
          "'rope_factor' has no effect with rope_type 'default'; choose another");
  const bool has_original = type == "llama3" || type == "yarn" || type == "longrope";
  if (has_original) {
    require_range("rope_original_positions", config.rope_original_positions, kMaxSize);
  }
  if (type != "yarn") {
    const ModelConfig usual;
    for (const auto& [field, is_usual] :
         {std::pair{"rope_beta_fast", config.rope_beta_fast == usual.rope_beta_fast},
          {"rope_beta_slow", config.rope_beta_slow == usual.rope_beta_slow},
          {"rope_whole_pairs", config.rope_whole_pairs == usual.rope_whole_pairs}}) {
      require(is_usual,
              fmt::format("'{}' has no effect but with rope_type 'yarn'; leave it out", field));
    }
  } else {
    require(config.rope_beta_slow > 0 && config.rope_beta_fast >= config.rope_beta_slow &&
                std::isfinite(config.rope_beta_fast),
            fmt::format("'rope_beta_fast' ({}) must not be under 'rope_beta_slow' ({}), and that "
                        "over 0",
                        config.rope_beta_fast, config.rope_beta_slow));
  }
  require(type != "longrope" || config.rope_original_positions > 1,
          "'rope_original_positions' must be over 1 with rope_type 'longrope'");
  require(type == "yarn" || type == "longrope" || config.rope_attention_factor == 0,
          "'rope_attention_factor' has no effect but with rope_type 'yarn' or 'longrope'; leave it "
          "out");
  check_factors_of_pairs("rope_short_factors", config.rope_short_factors, config);
  check_factors_of_pairs("rope_long_factors", config.rope_long_factors, config);
  if (type == "llama3") {
    require(
        config.rope_low_freq_factor > 0 &&
            config.rope_high_freq_factor > config.rope_low_freq_factor,
        fmt::format("'rope_high_freq_factor' ({}) must be over 'rope_low_freq_factor' ({}), and "
                    "that over 0",
                    config.rope_high_freq_factor, config.rope_low_freq_factor));
  } else {
    const ModelConfig usual = canonical(config);
    require(config.rope_low_freq_factor == usual.rope_low_freq_factor &&
                config.rope_high_freq_factor == usual.rope_high_freq_factor &&
                (has_original || config.rope_original_positions == usual.rope_original_positions),
            "'rope_low_freq_factor', 'rope_high_freq_factor' and 'rope_original_positions' have no "
            "effect but with rope_type 'llama3' (the last one: or 'yarn', 'longrope'); leave them "
            "out");
  }
  require(config.partial_rotary_factor > 0 && config.partial_rotary_factor <= 1,
          fmt::format("'partial_rotary_factor' must be over 0, and 1 at most, not {}",
                      config.partial_rotary_factor));
  require(config.rotary_size() >= 2 && config.rotary_size() % 2 == 0,
          fmt::format("the part of a head that turns must be even (rotary positions turn pairs), "
                      "and of 'head_dim' {} it is {}",
                      config.head_size(), config.rotary_size()));
}

void check_layers(const ModelConfig& config) {
  const std::string& pattern = config.layer_pattern;
  require(
      pattern.find_first_not_of("sfn") == std::string::npos &&
          std::ssize(pattern) <= config.num_layers,
      fmt::format("'layer_pattern' must have at most 'num_layers' ({}) of the letters s (window), "
                  "f (none) and n (none, and no positions), not '{}'",
                  config.num_layers, pattern));
  require(pattern.find('n') == std::string::npos || !family_of(config).has("sliding_window"),
          "'layer_pattern' may have an n only where no layer can have a window: files of the other "
          "families cannot say both");
  require(pattern.empty() || config.full_layers == 0,
          "'full_layers' has no effect with a 'layer_pattern'; leave it out");
  const bool has_windows = pattern.find('s') != std::string::npos;
  require(pattern.empty() || has_windows == (config.sliding_window > 0),
          "a 'layer_pattern' with an s needs a 'sliding_window', and one without has none");
}

void check_limits(const ModelConfig& config, const Family& family) {
  const FileLimits& limits = family.limits;
  require(!limits.norm_eps || config.norm_eps == *limits.norm_eps,
          fmt::format("'norm_eps' is {} with {}, whose files do not name it",
                      limits.norm_eps.value_or(0), family.name));
  const double divisor = config.score_divisor();
  require(!limits.has_whole_score_divisor ||
              (divisor < 1e9 && std::abs(divisor - std::round(divisor)) < 1e-6 * divisor &&
               divisor > 0.5),
          fmt::format("'attention_multiplier' must be 1 over the root of a whole number with {}, "
                      "whose files name that",
                      family.name));
  require(
      !limits.has_few_stretches || config.rope_type == "default" || config.rope_type == "longrope",
      fmt::format("'rope_type' must be default or longrope with {}", family.name));
  require(!family.design.windows_are_plain || config.rope_whole_pairs,
          fmt::format("'rope_whole_pairs' is not to be had with {}", family.name));
}

void check_factors(const ModelConfig& config) {
  const auto require_positive = [](const char* field, double value, bool may_be_zero) {
    require(
        std::isfinite(value) && (value > 0 || (may_be_zero && value == 0)),
        fmt::format("'{}' must be {}0, not {}", field, may_be_zero ? "at least " : "over ", value));
  };
  require_positive("clip_qkv", config.clip_qkv, true);
  require_positive("embedding_multiplier", config.embedding_multiplier, false);
  require_positive("residual_multiplier", config.residual_multiplier, false);
  require_positive("attention_multiplier", config.attention_multiplier, true);
  require_positive("logits_divisor", config.logits_divisor, false);
  require_positive("attention_softcap", config.attention_softcap, true);
  require_positive("logits_softcap", config.logits_softcap, true);
  require_positive("rope_attention_factor", config.rope_attention_factor, true);
  require(
      config.rope_local_theta == 0 ||
          (config.rope_local_theta >= 1 && std::isfinite(config.rope_local_theta)),
      fmt::format("'rope_local_theta' must be at least 1, or 0, not {}", config.rope_local_theta));
}

void check_experts(const ModelConfig& config, const Family& family) {
  if (!family.has("num_experts")) return;
  require_range("num_experts", config.num_experts, kMaxExperts);
  require_range("experts_per_token", config.experts_per_token, config.num_experts);
  require(config.num_experts * config.num_layers <= kMaxExpertsInAll,
          fmt::format("'num_experts' ({}) times 'num_layers' ({}) is over {}", config.num_experts,
                      config.num_layers, kMaxExpertsInAll));
  require(config.router_aux_loss >= 0 && std::isfinite(config.router_aux_loss),
          fmt::format("'router_aux_loss' must be at least 0, not {}", config.router_aux_loss));
}

}  // namespace

void check(const ModelConfig& config) {
  refuse_foreign(config, family_of(config));
  require_range("vocab_size", config.vocab_size, kMaxSize);
  require_range("hidden_size", config.hidden_size, kMaxHidden);
  require_range("intermediate_size", config.intermediate_size, kMaxSize);
  require_range("num_layers", config.num_layers, kMaxLayers);
  require_range("num_heads", config.num_heads, kMaxHeads);
  require_range("num_kv_heads", config.num_kv_heads, kMaxHeads);
  require_range("max_positions", config.max_positions, kMaxSize);
  require(config.head_dim >= 0 && config.head_dim <= kMaxHeads,
          fmt::format("'head_dim' must be from 0 to {}, not {}", kMaxHeads, config.head_dim));
  require(config.sliding_window >= 0 && config.sliding_window <= kMaxSize,
          fmt::format("'sliding_window' must be from 0 to {}, not {}", kMaxSize,
                      config.sliding_window));
  require(config.full_layers >= 0 && config.full_layers < config.num_layers,
          fmt::format("'full_layers' must be from 0 to under 'num_layers' ({}), not {}",
                      config.num_layers, config.full_layers));
  require(config.full_layers == 0 || config.sliding_window > 0,
          "'full_layers' has no effect without a 'sliding_window'; leave it out");
  require(config.activation == "gelu" || config.activation == "gelu_tanh",
          fmt::format("'activation' must be gelu or gelu_tanh, not '{}'", config.activation));
  const Family& family = family_of(config);
  require(family.has("num_kv_heads") || config.num_kv_heads == config.num_heads,
          fmt::format("'num_kv_heads' must be 'num_heads' ({}) with {}, not {}", config.num_heads,
                      family.name, config.num_kv_heads));
  require(config.norm_eps >= 0 && config.norm_eps <= 1,
          fmt::format("'norm_eps' must be from 0 to 1, not {}", config.norm_eps));
  require(config.num_heads % config.num_kv_heads == 0,
          fmt::format("'num_kv_heads' must divide 'num_heads' ({}), and {} does not",
                      config.num_heads, config.num_kv_heads));
  require(config.head_dim != 0 || config.hidden_size % config.num_heads == 0,
          fmt::format("'num_heads' must divide 'hidden_size' ({}) unless 'head_dim' is given, and "
                      "{} does not",
                      config.hidden_size, config.num_heads));
  check_rope(config);
  check_layers(config);
  check_factors(config);
  check_experts(config, family);
  check_limits(config, family);
}

}  // namespace atl::weights
