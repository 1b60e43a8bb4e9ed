#pragma once
// How llama.cpp's files name and lay out the tensors of the families that they have, for those who
// read them and who write them. Pure functions.
#include <array>
#include <string>
#include <string_view>

#include "atoll/weights/families.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::weights {

/// How the rows of queries, keys and values lie.
enum class GgufRows {
  kAsOurs,
  kTurningNeighbours,  // Pairs of a head that turn together are neighbours; with us one half of the
                       // head turns with the other.
  kQueriesFirst,       // Of all heads, then all keys, then all values; with us head by head.
};

struct GgufArchitecture {
  std::string_view name;    // general.architecture,
  std::string_view family;  // and ours.
  GgufRows rows = GgufRows::kAsOurs;
  bool needs_head = false;  // A tied model has its embedding twice.
  /// In a plain MLP, where the file does not say it.
  std::string_view activation = "gelu";
  /// The weights of a token's experts add up to 1; files do not say it.
  bool router_normalises = true;
  /// What files do not say either: see ModelConfig::layer_pattern.
  std::string_view layer_pattern = "";
  /// A model of so many layers divides scores by the root of hidden_size / num_heads, others by
  /// that of a head's size, as files do not say.
  int64_t num_layers_of_wide_scores = 0;
  bool says_score_scale = false;
  double usual_attention_softcap = 0;
  double usual_logits_softcap = 0;
};

/// A key of ours, behind the architecture's name: ModelConfig::activation.
inline constexpr const char* kGgufActivation = "hidden_activation";

inline constexpr std::array kGgufArchitectures = {
    GgufArchitecture{"llama", "llama", GgufRows::kTurningNeighbours},
    GgufArchitecture{"llama", "mixtral", GgufRows::kTurningNeighbours},
    GgufArchitecture{"qwen2", "qwen2"},
    GgufArchitecture{"qwen3", "qwen3"},
    GgufArchitecture{"qwen3moe", "qwen3_moe"},
    GgufArchitecture{"olmo", "olmo", GgufRows::kTurningNeighbours},
    GgufArchitecture{"olmo2", "olmo2"},
    GgufArchitecture{"phi3", "phi3"},
    GgufArchitecture{.name = "smollm3",
                     .family = "smollm3",
                     .rows = GgufRows::kTurningNeighbours,
                     .layer_pattern = "fffn"},
    GgufArchitecture{.name = "granite",
                     .family = "granite",
                     .rows = GgufRows::kTurningNeighbours,
                     .says_score_scale = true},
    GgufArchitecture{.name = "gemma2",
                     .family = "gemma2",
                     .layer_pattern = "sf",
                     .num_layers_of_wide_scores = 46,
                     .usual_attention_softcap = 50,
                     .usual_logits_softcap = 30},
    GgufArchitecture{.name = "gemma3",
                     .family = "gemma3_text",
                     .layer_pattern = "sssssf",
                     .num_layers_of_wide_scores = 62},
    GgufArchitecture{.name = "olmoe", .family = "olmoe", .router_normalises = false},
    GgufArchitecture{"gpt2", "gpt2", GgufRows::kAsOurs, false, "gelu_tanh"},
    GgufArchitecture{"gptneox", "gpt_neox", GgufRows::kQueriesFirst, true}};

/// Throws InputError naming the families that have one.
const GgufArchitecture& gguf_architecture_of(const ModelConfig& config);

/// The key of norm_eps.
const char* gguf_norm_key(const Family& family);

/// Calls use(key, value, what it is without the key) for the family's own real settings that files
/// say. `Config`: a ModelConfig, const for those who write.
template <typename Config, typename Use>
void for_each_gguf_real(const GgufArchitecture& architecture, const Family& family, Config& config,
                        const Use& use) {
  if (family.has("clip_qkv")) use("attention.clamp_kqv", config.clip_qkv, 0);
  if (family.has("embedding_multiplier")) use("embedding_scale", config.embedding_multiplier, 1);
  if (family.has("residual_multiplier")) use("residual_scale", config.residual_multiplier, 1);
  if (family.has("logits_divisor")) use("logit_scale", config.logits_divisor, 1);
  if (architecture.says_score_scale) use("attention.scale", config.attention_multiplier, 0);
  if (family.has("attention_softcap")) {
    use("attn_logit_softcapping", config.attention_softcap, architecture.usual_attention_softcap);
    use("final_logit_softcapping", config.logits_softcap, architecture.usual_logits_softcap);
  }
  if (family.has("rope_local_theta")) use("rope.freq_base_swa", config.rope_local_theta, 10'000);
}

/// By how much each pair of a head is slowed, where that follows Llama 3's rule.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
std::vector<double> llama3_factors(const ModelConfig& config);

/// Settings are singles there: the number with the fewest digits that is this one as a single.
double as_single(double value);

/// Those of all experts are one tensor there.
std::string gguf_name_of(const ParameterSpec& spec);
/// A matrix has a row for each output. Of one expert where the tensor is that of all.
std::vector<int64_t> gguf_shape_of(const ParameterSpec& spec);
/// What files hold is by so much larger than with us: where a norm adds one to its weights, they
/// have the sum.
float gguf_added(const ParameterSpec& spec, const ModelConfig& config);
/// The architecture's layers of this model, as ModelConfig::layer_pattern has them.
std::string gguf_layer_pattern(const ModelConfig& config, const GgufArchitecture& architecture);
/// What scores are multiplied by, where files do not say it.
double gguf_score_scale(const ModelConfig& config, const GgufArchitecture& architecture);
/// A vector whose elements lie otherwise than with us is one of rows of one.
int64_t gguf_num_rows(const std::vector<int64_t>& shape, const RowOrder& order);
RowOrder gguf_order_of(const ParameterSpec& spec, const ModelConfig& config,
                       const GgufArchitecture& architecture);

}  // namespace atl::weights
