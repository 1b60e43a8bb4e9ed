#pragma once
// What a model is: its sizes, and from them the names, shapes and order of its parameters. Free of
// LibTorch, so that planning and checking need none. Plain values; no thread rule.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/settings.h"

namespace atl::weights {

constexpr int64_t kMaxLayers = 10'000;

/// What ModelConfig::rope_type may be.
bool is_rope_type(std::string_view name);
constexpr const char* kRopeTypeNames = "default, linear, dynamic, llama3, yarn or longrope";

/// A decoder-only transformer of one of the families in families.h. A setting that the family does
/// not have keeps its default: check() refuses others.
struct ModelConfig {
  std::string architecture = "llama";  // As config.json's model_type.
  int64_t vocab_size = 0;              // 0: the tokenizer's; to be filled in before one is made.
  int64_t hidden_size = 256;
  int64_t intermediate_size = 640;
  int64_t num_layers = 4;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 0;  // 0: hidden_size / num_heads.
  int64_t max_positions = 512;
  double rope_theta = 10'000;
  std::string rope_type = "default";    // default, linear, dynamic (NTK), llama3, yarn, longrope.
  double rope_factor = 1;               // By how much positions are stretched.
  double rope_low_freq_factor = 1;      // llama3: waves longer than original / low are stretched,
  double rope_high_freq_factor = 4;     // those shorter than original / high are not.
  int64_t rope_original_positions = 0;  // llama3, yarn, longrope: before stretching.
  double rope_beta_fast = 32;           // yarn: waves that turn more often than this in `original`
  double rope_beta_slow = 1;            // are kept, those less often than this stretched whole.
  bool rope_whole_pairs = true;         // yarn: those bounds are rounded to whole pairs.
  double rope_attention_factor = 0;     // Of queries and keys; 0: yarn, 0.1 ln(factor) + 1;
                                        // longrope, sqrt(1 + ln(factor) / ln(original)).
  std::string rope_short_factors;       // longrope: by how much each pair is slowed, "1,1.5, ...",
  std::string rope_long_factors;        // and in texts over `original`.
  double rope_local_theta = 0;          // Of layers with a window; 0: rope_theta.
  double partial_rotary_factor = 1;     // The share of each head that turns.
  int64_t sliding_window = 0;           // Positions that a query sees, its own included; 0: all.
  int64_t full_layers = 0;              // The first layers, which have no window.
  /// Kinds of layers, again and again: s has the window, f has none, n has none and does not turn.
  /// Empty: as the two above say.
  std::string layer_pattern;
  double norm_eps = 1e-5;
  bool tie_embeddings = true;
  bool attention_bias = false;      // In the projections of attention.
  bool mlp_bias = false;            // In those of the MLP.
  bool parallel_residual = true;    // Attention and MLP read the same residual stream.
  std::string activation = "gelu";  // gelu (erf), gelu_tanh.
  double clip_qkv = 0;              // Largest magnitude in queries, keys and values; 0: any.
  double embedding_multiplier = 1;
  double residual_multiplier = 1;   // Of what a part adds to the residual stream.
  double attention_multiplier = 0;  // Of scores; 0: 1 / sqrt(head size).
  double logits_divisor = 1;
  double attention_softcap = 0;  // Scores become cap tanh(score / cap); 0: they stay.
  double logits_softcap = 0;     // Logits likewise.
  int64_t num_experts = 0;       // In each layer, in place of its MLP; of families that have them.
  int64_t experts_per_token = 2;
  bool router_normalises = true;  // The weights of a token's experts add up to 1.
  double router_aux_loss = 0;     // Weight of the loss that balances experts, in training.

  void visit(SettingList& list);
  int64_t head_size() const { return head_dim != 0 ? head_dim : hidden_size / num_heads; }
  /// Elements of a head that turn with the position, its first ones; 0: positions are learned.
  int64_t rotary_size() const;
  /// The longest text, in tokens.
  int64_t context() const;
  /// The longest text in which positions turn as in the shortest; context() where they always do.
  int64_t steady_positions() const;
  /// Positions that a query of that layer sees; 0: all.
  int64_t window_of(int64_t layer) const;
  /// Whether queries and keys of that layer turn with the position.
  bool turns(int64_t layer) const;
  double score_scale() const;
  /// What scores are divided by the root of.
  double score_divisor() const { return 1 / (score_scale() * score_scale()); }
  bool operator==(const ModelConfig&) const = default;
};

/// Of every `interval` layers the last is of kind `last`, as ModelConfig::layer_pattern has it;
/// none is where there are fewer layers than that, or `interval` is under 1.
std::string pattern_of(char others, char last, int64_t interval, int64_t num_layers);

/// The same model with its defaults in all that has no effect: two configs are of one model when
/// these are equal.
ModelConfig canonical(ModelConfig config);

/// Throws UsageError naming the first field that is out of range or contradicts another. A
/// vocab_size of 0 is an error here: fill it in first.
void check(const ModelConfig& config);

/// What a parameter is for. Several weights and their biases may have one role: queries, keys and
/// values do, and gate and up.
enum class Role {
  kEmbedding,
  kPositions,      // Learned: a row for each position.
  kAttentionNorm,  // Before it.
  kQueryKeyValue,
  kQueryNorm,
  kKeyNorm,
  kSinks,  // A score for each query head that no key has.
  kAttentionOutput,
  kAttentionNormBehind,
  kMlpNorm,
  kRouter,    // A logit for each expert.
  kMlpInput,  // Gate and up, or up alone.
  kMlpOutput,
  kMlpNormBehind,
  kFinalNorm,
  kHead,
};

/// What rope_short_factors and rope_long_factors say. Throws UsageError naming what is no number.
std::vector<double> numbers_of(std::string_view list);
std::string list_of(const std::vector<double>& numbers);

/// One parameter tensor and its place in the flat buffer of all parameters.
struct ParameterSpec {
  std::string name;            // As Hugging Face names it.
  std::vector<int64_t> shape;  // As in its files. A matrix is (outputs, inputs) unless ...
  int64_t offset = 0;          // In elements.
  int64_t size = 0;            // In elements.
  int64_t layer = -1;          // -1: before, or after, all layers.
  Role role = Role::kEmbedding;
  bool inputs_first = false;  // ... it is (inputs, outputs).
  int64_t expert = -1;        // Whose it is; -1: that of none.
  int64_t num_experts = 0;    // Over 0: one tensor for all of them, its first dimension.

  bool is_bias() const { return name.ends_with("bias"); }
  /// That of each expert where all are one tensor, else the parameter itself.
  std::vector<ParameterSpec> parts() const;
};

/// All parameters in the order of the flat buffer: the embedding, layer by layer, the final norm,
/// the head (unless tied). Nothing lies between them. The weights of one role are adjacent, and so
/// are its biases, so that one matrix product can use them as one.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

/// The length of the flat buffer.
int64_t num_parameters(const ModelConfig& config);

}  // namespace atl::weights
