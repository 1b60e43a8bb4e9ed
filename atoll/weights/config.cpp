#include "atoll/weights/config.h"

#include <fmt/format.h>

#include "atoll/base/error.h"
#include "atoll/weights/families.h"

namespace atl::weights {
namespace {

// Far beyond any model, and small enough that the number of parameters stays within int64.
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxHeads = 4096;  // And the most elements of one head.
constexpr double kMaxRopeFactor = 1024;

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError("model: " + message);
}

void require_range(const char* field, int64_t value, int64_t max) {
  require(value >= 1 && value <= max,
          fmt::format("'{}' must be from 1 to {}, not {}", field, max, value));
}

/// What a family does not have keeps its default.
void refuse_foreign(const ModelConfig& config, const Family& family) {
  const ModelConfig usual;
  const auto refuse_unless = [&](const char* field, bool is_usual) {
    require(
        is_usual || family.has(field),
        fmt::format("'{}' has no effect with architecture '{}'; leave it out", field, family.name));
  };
  refuse_unless("head_dim", config.head_dim == usual.head_dim);
  refuse_unless("partial_rotary_factor",
                config.partial_rotary_factor == usual.partial_rotary_factor);
  refuse_unless("sliding_window", config.sliding_window == usual.sliding_window);
  refuse_unless("full_layers", config.full_layers == usual.full_layers);
  refuse_unless("attention_bias", config.attention_bias == usual.attention_bias);
  refuse_unless("mlp_bias", config.mlp_bias == usual.mlp_bias);
  refuse_unless("parallel_residual", config.parallel_residual == usual.parallel_residual);
  refuse_unless("activation", config.activation == usual.activation);
}

void check_rope(const ModelConfig& config) {
  require(config.rope_theta >= 1,
          fmt::format("'rope_theta' must be at least 1, not {}", config.rope_theta));
  const std::string& type = config.rope_type;
  require(type == "default" || type == "linear" || type == "dynamic" || type == "llama3",
          fmt::format("'rope_type' must be default, linear, dynamic or llama3, not '{}'", type));
  require(config.rope_factor >= 1 && config.rope_factor <= kMaxRopeFactor,
          fmt::format("'rope_factor' must be from 1 to {}, not {}", kMaxRopeFactor,
                      config.rope_factor));
  require(type != "default" || config.rope_factor == 1,
          "'rope_factor' has no effect with rope_type 'default'; choose linear, dynamic or llama3");
  if (type == "llama3") {
    require_range("rope_original_positions", config.rope_original_positions, kMaxSize);
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
                config.rope_original_positions == usual.rope_original_positions,
            "'rope_low_freq_factor', 'rope_high_freq_factor' and 'rope_original_positions' have no "
            "effect but with rope_type 'llama3'; leave them out");
  }
  require(config.partial_rotary_factor > 0 && config.partial_rotary_factor <= 1,
          fmt::format("'partial_rotary_factor' must be over 0, and 1 at most, not {}",
                      config.partial_rotary_factor));
  require(config.rotary_size() >= 2 && config.rotary_size() % 2 == 0,
          fmt::format("the part of a head that turns must be even (rotary positions turn pairs), "
                      "and of 'head_dim' {} it is {}",
                      config.head_size(), config.rotary_size()));
}

}  // namespace

void ModelConfig::visit(SettingList& list) {
  list.section("model", "the transformer");
  list.add("architecture", architecture, "llama, mistral, qwen2, qwen3, olmo2, gpt_neox");
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
           "how positions are stretched: default (not), linear, dynamic, llama3");
  list.add("rope_factor", rope_factor, "by how much", {.min = 1, .max = kMaxRopeFactor});
  list.add("rope_low_freq_factor", rope_low_freq_factor,
           "llama3: waves longer than rope_original_positions / this are stretched",
           {.min = 0, .max = kMaxRopeFactor});
  list.add("rope_high_freq_factor", rope_high_freq_factor,
           "llama3: waves shorter than rope_original_positions / this are not",
           {.min = 0, .max = kMaxRopeFactor});
  list.add("rope_original_positions", rope_original_positions,
           "llama3: the longest context before stretching", {.min = 0, .max = kMaxSize});
  list.add("partial_rotary_factor", partial_rotary_factor,
           "share of each head that turns with the position (gpt_neox)", {.min = 0, .max = 1});
  list.add("sliding_window", sliding_window,
           "positions that a query sees, its own included; 0 = all (mistral, qwen2, qwen3)",
           {.min = 0, .max = kMaxSize});
  list.add("full_layers", full_layers, "first layers, which have no window (qwen2, qwen3)",
           {.min = 0, .max = kMaxLayers});
  list.add("norm_eps", norm_eps, "epsilon of RMSNorm or LayerNorm", {.min = 0, .max = 1});
  list.add("tie_embeddings", tie_embeddings, "input and output embedding are one matrix");
  list.add("attention_bias", attention_bias,
           "biases in attention (llama, qwen3, olmo2, gpt_neox; qwen2 has its own)");
  list.add("mlp_bias", mlp_bias, "biases in the MLP (llama; gpt_neox always)");
  list.add("parallel_residual", parallel_residual,
           "attention and MLP read the same residual stream (gpt_neox)");
  list.add("activation", activation, "gelu or gelu_tanh, in the MLP (gpt_neox)");
}

int64_t ModelConfig::context() const {
  const double stretch = rope_type == "dynamic" ? rope_factor : 1;
  return static_cast<int64_t>(static_cast<double>(max_positions) * stretch);
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
    config.rope_original_positions = usual.rope_original_positions;
  }
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
  require(config.architecture != "gpt_neox" || config.num_kv_heads == config.num_heads,
          fmt::format("'num_kv_heads' must be 'num_heads' ({}) with gpt_neox, not {}",
                      config.num_heads, config.num_kv_heads));
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
}

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
  return family_of(config).specs(config);
}

int64_t num_parameters(const ModelConfig& config) {
  const ParameterSpec last = parameter_specs(config).back();
  return last.offset + last.size;
}

}  // namespace atl::weights
