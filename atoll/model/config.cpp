#include "atoll/model/config.h"

#include <fmt/format.h>

#include "atoll/base/error.h"

namespace atl::model {
namespace {

// Far beyond any model, and small enough that the number of parameters stays within int64.
constexpr int64_t kMaxSize = int64_t{1} << 24;
constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxHeads = 4096;  // And the most elements of one head.

void require(bool condition, const std::string& message) {
  if (!condition) throw UsageError("model: " + message);
}

void require_range(const char* field, int64_t value, int64_t max) {
  require(value >= 1 && value <= max,
          fmt::format("'{}' must be from 1 to {}, not {}", field, max, value));
}

/// Appends tensors one behind the other.
class SpecList {
 public:
  void add(std::string name, std::vector<int64_t> shape, int64_t layer) {
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

}  // namespace

void ModelConfig::visit(SettingList& list) {
  list.section("model", "the transformer: a Llama, or a Qwen 3 with qk_norm");
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
  list.add("norm_eps", norm_eps, "epsilon of RMSNorm", {.min = 0, .max = 1});
  list.add("tie_embeddings", tie_embeddings, "input and output embedding are one matrix");
  list.add("qk_norm", qk_norm, "RMSNorm over each query and key head (Qwen 3)");
}

void check(const ModelConfig& config) {
  require_range("vocab_size", config.vocab_size, kMaxSize);
  require_range("hidden_size", config.hidden_size, kMaxHidden);
  require_range("intermediate_size", config.intermediate_size, kMaxSize);
  require_range("num_layers", config.num_layers, kMaxLayers);
  require_range("num_heads", config.num_heads, kMaxHeads);
  require_range("num_kv_heads", config.num_kv_heads, kMaxHeads);
  require_range("max_positions", config.max_positions, kMaxSize);
  require(config.head_dim >= 0 && config.head_dim <= kMaxHeads,
          fmt::format("'head_dim' must be from 0 to {}, not {}", kMaxHeads, config.head_dim));
  require(config.rope_theta >= 1,
          fmt::format("'rope_theta' must be at least 1, not {}", config.rope_theta));
  require(config.norm_eps >= 0 && config.norm_eps <= 1,
          fmt::format("'norm_eps' must be from 0 to 1, not {}", config.norm_eps));
  require(config.num_heads % config.num_kv_heads == 0,
          fmt::format("'num_kv_heads' must divide 'num_heads' ({}), and {} does not",
                      config.num_heads, config.num_kv_heads));
  require(config.head_dim != 0 || config.hidden_size % config.num_heads == 0,
          fmt::format("'num_heads' must divide 'hidden_size' ({}) unless 'head_dim' is given, and "
                      "{} does not",
                      config.hidden_size, config.num_heads));
  require(config.head_size() % 2 == 0,
          fmt::format("'head_dim' must be even (rotary positions turn pairs), not {}",
                      config.head_size()));
}

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t queries = config.num_heads * config.head_size();
  const int64_t keys = config.num_kv_heads * config.head_size();
  SpecList specs;
  specs.add("model.embed_tokens.weight", {config.vocab_size, hidden}, -1);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto add = [&](const char* name, std::vector<int64_t> shape) {
      specs.add(fmt::format("model.layers.{}.{}.weight", layer, name), std::move(shape), layer);
    };
    add("input_layernorm", {hidden});
    add("self_attn.q_proj", {queries, hidden});
    add("self_attn.k_proj", {keys, hidden});
    add("self_attn.v_proj", {keys, hidden});
    add("self_attn.o_proj", {hidden, queries});
    if (config.qk_norm) {
      add("self_attn.q_norm", {config.head_size()});
      add("self_attn.k_norm", {config.head_size()});
    }
    add("post_attention_layernorm", {hidden});
    add("mlp.gate_proj", {config.intermediate_size, hidden});
    add("mlp.up_proj", {config.intermediate_size, hidden});
    add("mlp.down_proj", {hidden, config.intermediate_size});
  }
  specs.add("model.norm.weight", {hidden}, -1);
  if (!config.tie_embeddings) specs.add("lm_head.weight", {config.vocab_size, hidden}, -1);
  return specs.take();
}

int64_t num_parameters(const ModelConfig& config) {
  const ParameterSpec last = parameter_specs(config).back();
  return last.offset + last.size;
}

}  // namespace atl::model
