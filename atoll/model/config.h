#pragma once
// What a model is: its sizes, and from them the names, shapes and order of its parameters. Free of
// LibTorch, so that planning and checking need none. Plain values; no thread rule.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/base/settings.h"

namespace atl::model {

/// A decoder of the Llama family (Touvron et al. 2023): RMSNorm before each part, rotary positions,
/// grouped-query attention, SwiGLU, no biases. `qk_norm` adds an RMSNorm over each query and key
/// head, which makes it a Qwen 3.
struct ModelConfig {
  int64_t vocab_size = 0;  // 0: the tokenizer's; to be filled in before a model is made.
  int64_t hidden_size = 256;
  int64_t intermediate_size = 640;
  int64_t num_layers = 4;
  int64_t num_heads = 4;
  int64_t num_kv_heads = 2;
  int64_t head_dim = 0;  // 0: hidden_size / num_heads.
  int64_t max_positions = 512;
  double rope_theta = 10'000;
  double norm_eps = 1e-5;
  bool tie_embeddings = true;
  bool qk_norm = false;

  void visit(SettingList& list);
  int64_t head_size() const { return head_dim != 0 ? head_dim : hidden_size / num_heads; }
  bool operator==(const ModelConfig&) const = default;
};

/// Throws UsageError naming the first field that is out of range or contradicts another. A
/// vocab_size of 0 is an error here: fill it in first.
void check(const ModelConfig& config);

/// One parameter tensor and its place in the flat buffer of all parameters.
struct ParameterSpec {
  std::string name;            // As Hugging Face names it.
  std::vector<int64_t> shape;  // A matrix is (outputs, inputs).
  int64_t offset = 0;          // In elements.
  int64_t size = 0;            // In elements.
  int64_t layer = -1;          // -1: before, or after, all layers.
};

/// All parameters in the order of the flat buffer: the embedding, layer by layer, the final norm,
/// the head (unless tied). Nothing lies between them. Query, key and value matrices are adjacent,
/// and so are gate and up, so that one matrix product can use them as one.
std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);

/// The length of the flat buffer.
int64_t num_parameters(const ModelConfig& config);

}  // namespace atl::model
