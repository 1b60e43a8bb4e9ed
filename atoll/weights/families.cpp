#include "atoll/weights/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "atoll/base/error.h"

namespace atl::weights {
namespace {

/// Appends tensors one behind the other.
class SpecList {
 public:
  void add(std::string name, std::vector<int64_t> shape, int64_t layer = -1) {
    int64_t size = 1;
    for (const int64_t length : shape) size *= length;
    specs_.push_back({std::move(name), std::move(shape), offset_, size, layer});
    offset_ += size;
  }
  std::vector<ParameterSpec> take() { return std::move(specs_); }

 private:
  std::vector<ParameterSpec> specs_;
  int64_t offset_ = 0;
};

/// Where a layer of the gated families has its norms, by their names.
enum class Norms {
  kBefore,  // Each part reads a normalised residual stream.
  kBehind,  // Each part's result is normalised (OLMo 2).
};

/// RMSNorm, grouped-query attention, SwiGLU.
std::vector<ParameterSpec> gated_specs(const ModelConfig& config, Norms norms) {
  const QkNorm qk_norm = family_of(config).qk_norm;
  const int64_t hidden = config.hidden_size;
  const int64_t queries = config.num_heads * config.head_size();
  const int64_t keys = config.num_kv_heads * config.head_size();
  const int64_t inner = config.intermediate_size;
  SpecList specs;
  specs.add("model.embed_tokens.weight", {config.vocab_size, hidden});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](const char* name, std::vector<int64_t> shape) {
      specs.add(fmt::format("model.layers.{}.{}", layer, name), std::move(shape), layer);
    };
    if (norms == Norms::kBefore) add("input_layernorm.weight", {hidden});
    add("self_attn.q_proj.weight", {queries, hidden});
    add("self_attn.k_proj.weight", {keys, hidden});
    add("self_attn.v_proj.weight", {keys, hidden});
    if (has_qkv_bias(config)) {
      add("self_attn.q_proj.bias", {queries});
      add("self_attn.k_proj.bias", {keys});
      add("self_attn.v_proj.bias", {keys});
    }
    add("self_attn.o_proj.weight", {hidden, queries});
    if (has_output_bias(config)) add("self_attn.o_proj.bias", {hidden});
    if (qk_norm != QkNorm::kNone) {
      const bool is_whole = qk_norm == QkNorm::kWhole;
      add("self_attn.q_norm.weight", {is_whole ? queries : config.head_size()});
      add("self_attn.k_norm.weight", {is_whole ? keys : config.head_size()});
    }
    add("post_attention_layernorm.weight", {hidden});
    add("mlp.gate_proj.weight", {inner, hidden});
    add("mlp.up_proj.weight", {inner, hidden});
    if (config.mlp_bias) {
      add("mlp.gate_proj.bias", {inner});
      add("mlp.up_proj.bias", {inner});
    }
    add("mlp.down_proj.weight", {hidden, inner});
    if (config.mlp_bias) add("mlp.down_proj.bias", {hidden});
    if (norms == Norms::kBehind) add("post_feedforward_layernorm.weight", {hidden});
  }
  specs.add("model.norm.weight", {hidden});
  if (!config.tie_embeddings) specs.add("lm_head.weight", {config.vocab_size, hidden});
  return specs.take();
}

std::vector<ParameterSpec> llama_specs(const ModelConfig& config) {
  return gated_specs(config, Norms::kBefore);
}

std::vector<ParameterSpec> olmo2_specs(const ModelConfig& config) {
  return gated_specs(config, Norms::kBehind);
}

/// LayerNorm and projections with biases; query, key and value of each head side by side.
std::vector<ParameterSpec> gpt_neox_specs(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  SpecList specs;
  specs.add("gpt_neox.embed_in.weight", {config.vocab_size, hidden});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](const char* name, int64_t outputs, int64_t inputs, bool has_bias) {
      const auto full = [&](const char* part) {
        return fmt::format("gpt_neox.layers.{}.{}.{}", layer, name, part);
      };
      const bool is_norm = inputs == 0;
      specs.add(full("weight"),
                is_norm ? std::vector{outputs} : std::vector<int64_t>{outputs, inputs}, layer);
      if (has_bias) specs.add(full("bias"), {outputs}, layer);
    };
    add("input_layernorm", hidden, 0, true);
    add("post_attention_layernorm", hidden, 0, true);
    add("attention.query_key_value", 3 * hidden, hidden, config.attention_bias);
    add("attention.dense", hidden, hidden, config.attention_bias);
    add("mlp.dense_h_to_4h", inner, hidden, true);
    add("mlp.dense_4h_to_h", hidden, inner, true);
  }
  specs.add("gpt_neox.final_layer_norm.weight", {hidden});
  specs.add("gpt_neox.final_layer_norm.bias", {hidden});
  if (!config.tie_embeddings) specs.add("embed_out.weight", {config.vocab_size, hidden});
  return specs.take();
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      {.name = "llama",
       .hf_class = "LlamaForCausalLM",
       .settings = {"attention_bias", "mlp_bias", "head_dim"},
       .specs = llama_specs},
      {.name = "mistral",
       .hf_class = "MistralForCausalLM",
       .settings = {"sliding_window", "head_dim"},
       .specs = llama_specs,
       .usual_kv_heads = 8},
      {.name = "qwen2",
       .hf_class = "Qwen2ForCausalLM",
       .settings = {"sliding_window", "full_layers", "head_dim"},
       .specs = llama_specs,
       .has_qkv_bias = true,
       .usual_kv_heads = 32},
      {.name = "qwen3",
       .hf_class = "Qwen3ForCausalLM",
       .settings = {"attention_bias", "sliding_window", "full_layers", "head_dim"},
       .specs = llama_specs,
       .qk_norm = QkNorm::kPerHead,
       .usual_kv_heads = 32,
       .usual_head_dim = 128},
      {.name = "olmo2",
       .hf_class = "Olmo2ForCausalLM",
       .settings = {"attention_bias", "head_dim"},
       .specs = olmo2_specs,
       .layers = LayerKind::kOlmo2,
       .qk_norm = QkNorm::kWhole,
       .usual_norm_eps = 1e-5},
      {.name = "gpt_neox",
       .hf_class = "GPTNeoXForCausalLM",
       .settings = {"attention_bias", "partial_rotary_factor", "parallel_residual", "activation"},
       .specs = gpt_neox_specs,
       .layers = LayerKind::kGptNeoX,
       .usual_norm_eps = 1e-5},
  };
  return table;
}

bool Family::has(std::string_view setting) const {
  return std::ranges::count(settings, setting) > 0;
}

const Family* find_family(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  return found == families().end() ? nullptr : &*found;
}

const Family& family_of(const ModelConfig& config) {
  const Family* family = find_family(config.architecture);
  if (family != nullptr) return *family;
  std::vector<std::string_view> names;
  for (const Family& known : families()) names.push_back(known.name);
  throw UsageError(fmt::format("model: 'architecture' must be one of {}, not '{}'",
                               fmt::join(names, ", "), config.architecture));
}

bool has_qkv_bias(const ModelConfig& config) {
  return config.attention_bias || family_of(config).has_qkv_bias;
}

bool has_output_bias(const ModelConfig& config) { return config.attention_bias; }

}  // namespace atl::weights
