#include "atoll/weights/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "atoll/base/error.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

// Far beyond any model, and small enough that the number of parameters stays within int64.
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxHeads = 4096;  // And the most elements of one head.
constexpr double kMaxRopeFactor = 1024;
constexpr int64_t kMaxExperts = 4096;
constexpr int64_t kMaxExpertsInAll = 100'000;

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

std::string of_families(const char* what, const char* setting) {
  return fmt::format("{} ({})", what, family_names(setting));
}

/// Those that came later than runs and sweeps that are kept: there they have no name.
void visit_later_settings(ModelConfig& config, SettingList& list) {
  const ModelConfig usual;
  const auto add = [&](const char* key, auto& value, const auto& standard, std::string help) {
    list.add(key, value, std::move(help));
    list.unsaid_if(value == standard);
  };
  add("layer_pattern", config.layer_pattern, usual.layer_pattern,
      of_families("kinds of layers, again and again: s window, f none, n none and no positions",
                  "layer_pattern"));
  add("rope_local_theta", config.rope_local_theta, usual.rope_local_theta,
      of_families("base of the rotary positions in layers with a window; 0 = rope_theta",
                  "rope_local_theta"));
  add("rope_beta_fast", config.rope_beta_fast, usual.rope_beta_fast,
      "yarn: waves that turn more often than this in rope_original_positions are not stretched");
  add("rope_beta_slow", config.rope_beta_slow, usual.rope_beta_slow,
      "yarn: waves that turn less often than this are stretched whole");
  add("rope_whole_pairs", config.rope_whole_pairs, usual.rope_whole_pairs,
      "yarn: those bounds are rounded to whole pairs");
  add("rope_attention_factor", config.rope_attention_factor, usual.rope_attention_factor,
      "yarn, longrope: factor of queries and keys; 0 = what follows from rope_factor");
  add("rope_short_factors", config.rope_short_factors, usual.rope_short_factors,
      "longrope: by how much each pair is slowed, a list with commas");
  add("rope_long_factors", config.rope_long_factors, usual.rope_long_factors,
      "longrope: the same in texts over rope_original_positions");
  add("clip_qkv", config.clip_qkv, usual.clip_qkv,
      of_families("largest magnitude in queries, keys and values; 0 = any", "clip_qkv"));
  add("embedding_multiplier", config.embedding_multiplier, usual.embedding_multiplier,
      of_families("factor of the embedding", "embedding_multiplier"));
  add("residual_multiplier", config.residual_multiplier, usual.residual_multiplier,
      of_families("factor of what a part adds to the residual stream", "residual_multiplier"));
  add("attention_multiplier", config.attention_multiplier, usual.attention_multiplier,
      of_families("factor of the scores; 0 = 1 / sqrt(head size)", "attention_multiplier"));
  add("logits_divisor", config.logits_divisor, usual.logits_divisor,
      of_families("what logits are divided by", "logits_divisor"));
  add("attention_softcap", config.attention_softcap, usual.attention_softcap,
      of_families("scores become cap tanh(score / cap); 0 = they stay", "attention_softcap"));
  add("logits_softcap", config.logits_softcap, usual.logits_softcap,
      of_families("logits become cap tanh(logit / cap); 0 = they stay", "logits_softcap"));
  add("num_experts", config.num_experts, usual.num_experts,
      of_families("experts in each layer, in place of its MLP", "num_experts"));
  add("experts_per_token", config.experts_per_token, usual.experts_per_token,
      of_families("how many of them read a token", "experts_per_token"));
  add("router_normalises", config.router_normalises, usual.router_normalises,
      of_families("the weights of a token's experts add up to 1", "router_normalises"));
  add("router_aux_loss", config.router_aux_loss, usual.router_aux_loss,
      of_families("training: weight of the loss that balances experts", "router_aux_loss"));
}

}  // namespace

void ModelConfig::visit(SettingList& list) {
  list.section("model", "the transformer");
  list.add("architecture", architecture, family_names());
  list.add("vocab_size", vocab_size, "rows of the embedding; 0 = the tokenizer's",
           {.min = 0, .max = kMaxSize});
  list.add("hidden_size", hidden_size, "width of the residual stream",
           {.min = 1, .max = kMaxHidden});
  list.add("intermediate_size", intermediate_size, "width inside the MLP",
           {.min = 1, .max = kMaxSize});
  list.add("num_layers", num_layers, "transformer layers", {.min = 1, .max = kMaxLayers});
  list.add("num_heads", num_heads, "query heads", {.min = 1, .max = kMaxHeads});
  list.add("num_kv_heads", num_kv_heads, "key and value heads; divides num_heads",
           {.min = 1, .max = kMaxHeads});
  list.add("head_dim", head_dim, "size of a head, even; 0 = hidden_size / num_heads",
           {.min = 0, .max = kMaxHeads});
  list.add("max_positions", max_positions, "longest context", {.min = 1, .max = kMaxSize});
  list.add("rope_theta", rope_theta, "base of the rotary positions", {.min = 1, .max = 1e12});
  list.add("rope_type", rope_type,
           "how positions are stretched: default (not), linear, dynamic, llama3, yarn, longrope");
  list.add("rope_factor", rope_factor, "by how much", {.min = 1, .max = kMaxRopeFactor});
  list.add("rope_low_freq_factor", rope_low_freq_factor,
           "llama3: waves longer than rope_original_positions / this are stretched",
           {.min = 0, .max = kMaxRopeFactor});
  list.add("rope_high_freq_factor", rope_high_freq_factor,
           "llama3: waves shorter than rope_original_positions / this are not",
           {.min = 0, .max = kMaxRopeFactor});
  list.add("rope_original_positions", rope_original_positions,
           "llama3, yarn, longrope: the longest context before stretching",
           {.min = 0, .max = kMaxSize});
  list.add("partial_rotary_factor", partial_rotary_factor,
           of_families("share of each head that turns with the position", "partial_rotary_factor"),
           {.min = 0, .max = 1});
  list.add("sliding_window", sliding_window,
           of_families("positions that a query sees, its own included; 0 = all", "sliding_window"),
           {.min = 0, .max = kMaxSize});
  list.add("full_layers", full_layers,
           of_families("first layers, which have no window", "full_layers"),
           {.min = 0, .max = kMaxLayers});
  list.add("norm_eps", norm_eps, "epsilon of RMSNorm or LayerNorm", {.min = 0, .max = 1});
  list.add("tie_embeddings", tie_embeddings, "input and output embedding are one matrix");
  list.add("attention_bias", attention_bias,
           of_families("biases in attention, where they are a choice", "attention_bias"));
  list.add("mlp_bias", mlp_bias,
           of_families("biases in the MLP, where they are a choice", "mlp_bias"));
  list.add("parallel_residual", parallel_residual,
           of_families("attention and MLP read the same residual stream", "parallel_residual"));
  list.add("activation", activation, of_families("gelu or gelu_tanh, in the MLP", "activation"));
  visit_later_settings(*this, list);
}

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

std::vector<double> numbers_of(std::string_view list) {
  std::vector<double> numbers;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    std::string_view word = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    while (word.starts_with(' ')) word.remove_prefix(1);
    double number = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || stop != word.data() + word.size()) {
      throw UsageError(fmt::format("'{}' is no number", word));
    }
    numbers.push_back(number);
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
