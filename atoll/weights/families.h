#pragma once
// The model families. Each is one file, family_NAME.cpp, and its name in the registry below and in
// families.cpp: the tensors of which its models are made, its keys in config.json, and which of the
// decoder's ways (decoder.h) its layers go. Free of LibTorch.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::weights {

class HfKeys;

enum class NormKind {
  kRms,
  kRmsFromOne,       // Its weights are how much over 1 they are.
  kLayer,            // With a bias.
  kLayerWithoutAny,  // Without weights.
};

enum class NormPlace {
  kBefore,  // Each part reads a normalised residual stream.
  kBehind,  // Each part's result is normalised.
  kAround,  // Both.
};

/// RMSNorm over queries and keys.
enum class QkNorm {
  kNone,
  kPerHead,  // Over each head.
  kWhole,    // Over all queries, and over all keys.
};

/// How a row of Role::kQueryKeyValue's outputs is laid out.
enum class QkvOrder {
  kQueriesFirst,  // Of all heads, then all keys, then all values.
  kByHead,        // Query, key and value of each head.
};

enum class MlpKind {
  kGated,         // silu(gate) * up.
  kGatedByGelu,   // gelu_tanh(gate) * up (Shazeer 2020).
  kGatedClamped,  // Gate and up lie in turn: gpt-oss's own (operations.h).
  kPlain,         // The activation of up.
};

enum class PositionKind {
  kRotary,   // Queries and keys turn.
  kLearned,  // Role::kPositions is added to the embedding.
};

/// Which ways the layers of a family go.
struct LayerDesign {
  NormKind norm = NormKind::kRms;
  NormPlace norm_place = NormPlace::kBefore;
  QkNorm qk_norm = QkNorm::kNone;
  QkvOrder qkv_order = QkvOrder::kQueriesFirst;
  MlpKind mlp = MlpKind::kGated;
  PositionKind positions = PositionKind::kRotary;
  bool scales_embedding = false;   // By sqrt(hidden size).
  bool windows_are_plain = false;  // In layers with a window positions are not stretched.
  bool has_sinks = false;          // Role::kSinks.
};

/// What the files of a family cannot say.
struct FileLimits {
  std::optional<double> norm_eps;        // Another one.
  bool has_whole_score_divisor = false;  // Another than a whole ModelConfig::score_divisor().
  bool has_few_stretches = false;        // Other rope_types than default and longrope.
};

struct Family {
  std::string_view name;      // ModelConfig::architecture; "model_type" in config.json.
  std::string_view hf_class;  // "architectures" in config.json.
  /// What names begin with that a file may leave out: transformers does, of a model without a head.
  std::string_view prefix;
  /// Settings that not all families have; the others must keep their defaults.
  std::vector<std::string_view> settings;
  /// Ends of names of tensors in its files that are no parameters.
  std::vector<std::string_view> buffers = {".rotary_emb.inv_freq"};
  /// The one quant_method of a quantization_config that its files may name.
  std::string_view quantised = {};
  int64_t usual_window = 4096;  // Where a file does not say.
  int64_t usual_interval = 0;   // Of so many layers the last one has no window, where it does not.
  LayerDesign design = {};
  FileLimits limits = {};
  /// All tensors of a model whose embeddings are not tied.
  std::vector<ParameterSpec> (*tensors)(const ModelConfig& config);
  /// Its keys in config.json but for vocab_size.
  void (*keys)(HfKeys& keys, ModelConfig& config);

  bool has(std::string_view setting) const;
  bool turns() const { return design.positions == PositionKind::kRotary; }
};

// The registry.
Family llama();
Family mistral();
Family qwen2();
Family qwen3();
Family olmo();
Family olmo2();
Family olmo3();
Family phi3();
Family smollm3();
Family granite();
Family gemma2();
Family gemma3();
Family mixtral();
Family olmoe();
Family qwen3_moe();
Family gpt_oss();
Family gpt_neox();
Family gpt2();

const std::vector<Family>& families();

/// Null when there is none of that name.
const Family* find_family(std::string_view name);

/// Throws UsageError naming the known ones.
const Family& family_of(const ModelConfig& config);

/// "llama, mistral, ...": all, or those that have a setting.
std::string family_names(std::string_view setting = {});

}  // namespace atl::weights
