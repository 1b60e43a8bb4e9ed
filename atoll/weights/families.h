#pragma once
// The model families: what config.json calls them, which settings they have beyond those of all,
// and the tensors of which they are made. Free of LibTorch. A family is an entry in this table, its
// tensors here, and its mathematics in one file (decoder.h).
#include <string_view>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::weights {

/// RMSNorm over queries and keys.
enum class QkNorm {
  kNone,
  kPerHead,  // Over each head.
  kWhole,    // Over all queries, and over all keys.
};

/// Whose mathematics a layer has: decoder.h has one file for each.
enum class LayerKind { kLlama, kOlmo2, kGptNeoX };

struct Family {
  std::string_view name;      // ModelConfig::architecture; "model_type" in config.json.
  std::string_view hf_class;  // "architectures" in config.json.
  /// Settings that not all families have; the others must keep their defaults.
  std::vector<std::string_view> settings;
  std::vector<ParameterSpec> (*specs)(const ModelConfig& config);
  LayerKind layers = LayerKind::kLlama;
  QkNorm qk_norm = QkNorm::kNone;
  bool has_qkv_bias = false;  // Whatever `attention_bias` says.
  /// What config.json stands for where a key is absent. 0: as many as heads, hidden / heads.
  int64_t usual_kv_heads = 0;
  int64_t usual_head_dim = 0;
  double usual_norm_eps = 1e-6;

  bool has(std::string_view setting) const;
};

const std::vector<Family>& families();

/// Null when there is none of that name.
const Family* find_family(std::string_view name);

/// Throws UsageError naming the known ones.
const Family& family_of(const ModelConfig& config);

/// Biases of the query, key and value projections, and of the projection behind attention.
bool has_qkv_bias(const ModelConfig& config);
bool has_output_bias(const ModelConfig& config);

}  // namespace atl::weights
